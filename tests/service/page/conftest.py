"""One browser for all tests of a file; each test gets it as good as new."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.browser import Page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    opened = Page(tmp_path_factory.mktemp("browser"))
    yield opened
    opened.driver.quit()


@pytest.fixture
def page(browser: Page, tmp_path: Path) -> Page:
    browser.reset(tmp_path)
    return browser
