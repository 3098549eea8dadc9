"""The outbox: nothing is lost or sent twice, attempts back off and end, and a slow server costs no time."""

import time
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cloudrec.notify.channels import Hook, SendFailure
from cloudrec.notify.deliver import deliver
from cloudrec.notify.notice import Notification
from cloudrec.notify.outbox import MOST_TRIES, Outbox
from tests.unit.notify.support_receivers import hooks

NOW = 1795000000.0


def _notice(key: str = "finished:1") -> Notification:
    return Notification(key=key, event="finished", at=NOW, text="done", cluster="c", run="r")


def test_a_notice_is_delivered_once_over_restarts() -> None:
    with hooks(200) as server:
        hook = Hook(name="webhook", url=server.url)
        outbox = Outbox().adding([_notice()], ["webhook"])
        for _ in range(3):  # each time, another process reads what the last one wrote
            outbox = deliver(outbox.adding([_notice()], ["webhook"]), [hook], now=NOW, within_s=10)
            restored = Outbox.of(outbox.to_json())
            assert restored == outbox
            outbox = restored
    assert len(server.got) == 1
    assert [(done.channel, done.tries, done.why) for done in outbox.done] == [("webhook", 1, "")]


def test_a_server_error_is_tried_again_later_and_later_with_one_id() -> None:
    with hooks(500, 500, 200) as server:
        hook = Hook(name="webhook", url=server.url)
        outbox, now = Outbox().adding([_notice()], ["webhook"]), NOW
        waits = []
        while outbox.waiting:
            assert deliver(outbox, [hook], now=outbox.waiting[0].due - 1, within_s=10) == outbox
            now = outbox.waiting[0].due
            outbox = deliver(outbox, [hook], now=now, within_s=10)
            waits += [each.due - now for each in outbox.waiting]
    assert waits == [15.0, 30.0]
    assert len({got["id"] for got in server.got}) == 1
    assert len(server.got) == 3
    assert outbox.done[-1].tries == 3


def test_attempts_end() -> None:
    outbox, now = Outbox().adding([_notice()], ["webhook"]), NOW
    for _ in range(MOST_TRIES):
        (waiting,) = outbox.waiting
        now = waiting.due
        outbox = outbox.tried(waiting, SendFailure(why="500"), now)
    assert outbox.waiting == ()
    assert (outbox.done[-1].tries, outbox.done[-1].why) == (MOST_TRIES, "500")
    assert now - NOW > 3600  # an hour of an outage is survived


def test_a_server_that_drips_holds_up_neither_the_round_nor_the_other_channel() -> None:
    with hooks(drip=True) as slow, hooks(200) as quick:
        channels = [Hook(name="webhook", url=slow.url), Hook(name="slack", url=quick.url)]
        outbox = Outbox().adding([_notice("a"), _notice("b")], ["webhook", "slack"])
        began = time.monotonic()
        after = deliver(outbox, channels, now=NOW, within_s=1.5)
        took = time.monotonic() - began
    assert took < 5
    assert [got["text"].splitlines()[0] for got in quick.got] == [
        "*cloudrec: finished: run r, cluster c*"
    ] * 2
    assert [(each.channel, each.tries) for each in after.waiting] == [("webhook", 0), ("webhook", 1)]


def test_a_channel_that_was_removed_is_given_up() -> None:
    after = deliver(Outbox().adding([_notice()], ["webhook"]), [], now=NOW, within_s=1)
    assert after.waiting == ()
    assert after.done[0].why == "the way out is no longer in the settings"


@given(st.text(max_size=200))
def test_a_damaged_outbox_is_none(text: str) -> None:
    assert Outbox.of(text) is None or isinstance(Outbox.of(text), Outbox)


def test_an_outbox_is_bounded() -> None:
    outbox = Outbox()
    for number in range(2000):
        outbox = outbox.adding([replace(_notice(f"k{number}"), text="x" * 5000)], ["webhook"])
    assert len(outbox.to_json()) < 400_000  # a ConfigMap holds 1 MiB, and costs are in it, too
