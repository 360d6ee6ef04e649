"""The order of file names, and names that hold what a terminal obeys."""

import os

from hypothesis import given
from hypothesis import strategies as st

from uepnet.model.file_names import natural, printable


def test_numbers_count_as_numbers() -> None:
    names = ["IMG_10.jpg", "img_2.jpg", "1.jpg", "IMG_1.jpg", "²1.jpg", "-3.jpg", "٣.jpg"]
    assert [name for name in sorted(names, key=natural) if name.lower().startswith("img")] == [
        "IMG_1.jpg",
        "img_2.jpg",
        "IMG_10.jpg",
    ]


@given(st.lists(st.text()))
def test_any_names_can_be_sorted(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural, reverse=True), key=natural) == sorted(names, key=natural)


@given(st.binary(max_size=40))
def test_any_name_on_disk_becomes_text_that_is_safe_to_show(name: bytes) -> None:
    shown = printable(os.fsdecode(name))
    assert shown.isprintable()
    shown.encode()


def test_readable_names_stay_as_they_are() -> None:
    assert printable("Straße 群衆 'a b'.jpg") == "Straße 群衆 'a b'.jpg"
    assert printable("a\x1b[31m.jpg") == r"a\x1b[31m.jpg"
    assert printable(os.fsdecode(b"caf\xe9.jpg")) == r"caf\xe9.jpg"
