"""When idle GPU nodes are stopped."""

from __future__ import annotations

import pytest

from cloudrec.keeper.idle import IdleRecord, gpu_nodes, idleness
from cloudrec.keeper.meter import LiveNode, Tariff

MINUTE = 60.0
TARIFFS = (Tariff(pool="gpu", hourly_usd=60.0, gpus=8), Tariff(pool="cpu", hourly_usd=0.1))


def gpu(created: float = 0.0) -> LiveNode:
    return LiveNode(uid="a", pool="gpu", created=created)


def test_only_pools_with_gpus_count() -> None:
    nodes = [gpu(), LiveNode(uid="b", pool="cpu", created=0.0), LiveNode(uid="c", pool="", created=0.0)]
    assert gpu_nodes(nodes, TARIFFS) == [gpu()]


@pytest.mark.parametrize(
    ("record", "created", "idle_s"),
    [
        (IdleRecord(), 5 * MINUTE, 35 * MINUTE),  # no run yet: since the newest node began
        (IdleRecord(active=30 * MINUTE), 5 * MINUTE, 10 * MINUTE),  # since the last run
        (IdleRecord(active=10 * MINUTE), 38 * MINUTE, 2 * MINUTE),  # nodes that `up` has just brought back
    ],
)
def test_nodes_are_idle_since_the_last_run_or_since_they_began(
    record: IdleRecord, created: float, idle_s: float
) -> None:
    found = idleness(record, [gpu(), gpu(created)], is_active=False, now=40 * MINUTE)
    assert found.idle_s == idle_s


def test_an_active_run_is_never_idle_also_while_it_waits_for_nodes() -> None:
    found = idleness(IdleRecord(stopped=9.0), [], is_active=True, now=40 * MINUTE)
    assert found.idle_s is None
    assert found.record == IdleRecord(active=40 * MINUTE)


def test_without_gpu_nodes_nothing_is_idle_and_the_stop_is_remembered() -> None:
    found = idleness(IdleRecord(active=1.0, stopped=9.0), [], is_active=False, now=40 * MINUTE)
    assert found.idle_s is None
    assert found.record == IdleRecord(active=1.0, stopped=9.0)


def test_newer_nodes_end_a_stop_and_nodes_that_do_not_end_do_not() -> None:
    stopped = IdleRecord(active=1.0, stopped=20 * MINUTE)
    assert idleness(stopped, [gpu(5.0)], is_active=False, now=40 * MINUTE).record == stopped
    later = idleness(stopped, [gpu(30 * MINUTE)], is_active=False, now=40 * MINUTE)
    assert later.record == IdleRecord(active=1.0)


def test_a_damaged_record_is_an_empty_one() -> None:
    assert IdleRecord.of(IdleRecord(active=1.0).to_json()) == IdleRecord(active=1.0)
    for text in ("", "[]", "{}", '{"active": "x"}'):
        assert IdleRecord.of(text) == IdleRecord()
