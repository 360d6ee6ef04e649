"""Webhooks: signed, tried again, at least once, also after a restart."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.servers import Process, encoded, eventually, grey
from support.webhook import Receiver

from uepnet.service.cameras.database import Database
from uepnet.service.cameras.delivery import KEEP_SECONDS, Delivery, Outbox, waiting
from uepnet.service.cameras.history import History, Retention
from uepnet.service.cameras.writer import Writer
from uepnet.service.metrics import Metrics

IMAGE = encoded(grey(64, 64))
SECRET = "shared between both"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.close()


@pytest.fixture
def settings(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    (tmp_path / "c.yml").write_text(
        "cameras: {gate: {smooth_seconds: 0, limits: [{people: 3}]}}\n"
        f'notify: {{webhooks: [{{url: "{receiver.url}", secret_env: HOOK_SECRET}}]}}\n'
    )
    return {"cameras": tmp_path / "c.yml", "history": f"sqlite:///{tmp_path / 'h.sqlite'}"}


def post(server: Process, content: bytes = IMAGE) -> None:
    server.http.post(
        "/v1/count", params={"camera": "gate"}, content=content, headers={"Content-Type": "image/png"}
    ).raise_for_status()


def test_a_message_is_signed(process: Callable[..., Process], receiver: Receiver, settings: dict[str, object]) -> None:
    server = process(**settings)
    post(server)
    eventually(lambda: receiver.events() == ["opened"])
    headers, body = receiver.taken[0]
    signed = headers["X-Uepnet-Timestamp"].encode() + b"." + body
    expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["X-Uepnet-Signature"] == f"sha256={expected}"
    assert abs(float(headers["X-Uepnet-Timestamp"]) - time.time()) < 60
    message = json.loads(body)
    assert headers["X-Uepnet-Delivery"] == message["id"]
    assert (message["alert"]["camera"], message["alert"]["limit"]) == ("gate", 3)
    time.sleep(0.01)
    post(server, encoded(grey(64, 64, 0)))
    eventually(lambda: receiver.events() == ["opened", "ended"])


def test_a_receiver_whose_answer_never_ends_delays_nothing(
    process: Callable[..., Process], receiver: Receiver, settings: dict[str, object]
) -> None:
    receiver.endless = True
    server = process(**settings)
    post(server)
    time.sleep(0.01)
    post(server, encoded(grey(64, 64, 0)))
    eventually(lambda: receiver.events() == ["opened", "ended"])
    receiver.endless = False


def test_what_was_not_taken_is_delivered_later_also_after_a_kill(
    process: Callable[..., Process], receiver: Receiver, settings: dict[str, object]
) -> None:
    receiver.status = 503
    server = process(**settings)
    post(server)
    eventually(lambda: receiver.refused >= 1)  # sent only once it is stored
    server.kill()
    receiver.status = 200
    again = process(**settings)
    eventually(lambda: receiver.events() == ["opened"])
    post(again)
    time.sleep(1.0)
    assert receiver.events() == ["opened"]  # the alert goes on; it is not raised again
    assert "does not exist" not in "".join(again.log)
    assert not any("in-the-address" in line for line in server.log)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(f"sqlite:///{tmp_path / 'h.sqlite'}")
    yield opened
    opened.close()


@pytest.fixture
def writer(database: Database) -> Iterator[Writer]:
    started = Writer(database, History(database), Metrics(), Retention(None, None, None))
    yield started
    started.stop()


def test_a_message_is_kept_before_it_is_sent(database: Database, writer: Writer) -> None:
    """Who is killed after a receiver has heard of an alert must know of that alert later."""
    kept = []

    def send(delivery: Delivery) -> None:
        with database.reading() as connection:
            kept.append([one.id for one in waiting(connection)])

    Outbox(writer, database).add(Delivery("hook", "{}", "an-id", time.time()), send)
    eventually(lambda: kept)
    assert kept == [["an-id"]]


def test_a_message_that_cannot_be_kept_is_sent_all_the_same_and_once(database: Database, writer: Writer) -> None:
    outbox, sent = Outbox(writer, database), []
    with database.writing():  # another process that writes
        outbox.add(Delivery("hook", "{}", "an-id", time.time()), sent.append)
        outbox.send_late(time.time())
        assert sent == []
        outbox.send_late(time.time() + 2 * KEEP_SECONDS)
        assert [one.id for one in sent] == ["an-id"]
    writer.stop()
    assert len(sent) == 1
