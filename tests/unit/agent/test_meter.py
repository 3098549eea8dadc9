"""The meter: node-seconds times the price that was valid, by day, pool and run."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from cloudrec.errors import DataError
from cloudrec.keeper.meter import CostLedger, LiveNode, Tariff, advance, rate

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z
HOUR = 3600.0
ROUND_S = 120.0
GPU = Tariff(pool="gpu", instance_type="p5.48xlarge", capacity="spot", hourly_usd=60.0)
REST = Tariff(pool="", hourly_usd=0.5)


def node(uid: str = "a", *, pool: str = "gpu", created: float = NOON, run: str = "") -> LiveNode:
    return LiveNode(uid=uid, pool=pool, created=created, run=run)


def test_a_node_costs_from_its_creation_also_before_the_first_round() -> None:
    ledger = advance(CostLedger.begun(NOON), [node(created=NOON + 600)], [GPU, REST], NOON + HOUR)
    assert ledger.usd == pytest.approx(60 * 50 / 60 + 0.5)
    again = advance(ledger, [node(created=NOON + 600)], [GPU, REST], NOON + HOUR + 60)
    assert again.usd == pytest.approx(60 * 51 / 60 + 0.5 * 61 / 60)


def test_time_without_nodes_costs_only_what_has_no_nodes() -> None:
    ledger = advance(CostLedger.begun(NOON), [], [GPU, REST], NOON + 10 * HOUR)
    assert ledger.usd == pytest.approx(5.0)


def test_a_node_that_vanished_counts_for_half_of_the_time_since_the_last_round() -> None:
    ledger = advance(CostLedger.begun(NOON), [node()], [GPU], NOON + HOUR)
    assert advance(ledger, [], [GPU], NOON + HOUR + ROUND_S).usd == pytest.approx(60 + 1)


def test_nodes_that_vanished_count_until_the_end_that_the_cloud_had() -> None:
    ledger = advance(CostLedger.begun(NOON), [node()], [GPU], NOON + HOUR)
    # The guard was away for nine hours; the cloud ended the nodes after seven of them.
    assert advance(ledger, [], [GPU], NOON + 10 * HOUR, ended_at=NOON + 8 * HOUR).usd == pytest.approx(480)
    assert advance(ledger, [], [GPU], NOON + 10 * HOUR, ended_at=NOON + 11 * HOUR).usd == pytest.approx(330)
    assert advance(ledger, [], [GPU], NOON + 10 * HOUR, ended_at=NOON).usd == pytest.approx(330)


def test_a_new_price_is_valid_from_the_last_round_on() -> None:
    ledger = advance(CostLedger.begun(NOON), [node()], [GPU], NOON + HOUR)
    dearer = replace(GPU, hourly_usd=90.0)
    assert advance(ledger, [node()], [dearer], NOON + 2 * HOUR).usd == pytest.approx(150.0)


def test_costs_are_divided_by_day_and_run() -> None:
    midnight = NOON + 12 * HOUR
    ledger = advance(CostLedger.begun(midnight - HOUR), [], [GPU], midnight - HOUR)
    ledger = advance(ledger, [node(created=midnight - HOUR, run="r1")], [GPU], midnight + HOUR)
    ledger = advance(ledger, [node(created=midnight - HOUR, run="r2")], [GPU], midnight + 2 * HOUR)
    assert {(row.day, row.run): row.usd for row in ledger.rows} == {
        ("2026-11-21", "r1"): pytest.approx(60.0),
        ("2026-11-22", "r1"): pytest.approx(60.0),
        ("2026-11-22", "r2"): pytest.approx(60.0),
    }


def test_an_unknown_price_is_never_zero() -> None:
    unpriced = replace(GPU, hourly_usd=None)
    ledger = advance(CostLedger.begun(NOON), [node(), node("b", pool="new")], [unpriced, REST], NOON + HOUR)
    assert ledger.usd is None
    assert ledger.unpriced == ("gpu", "new")
    assert ledger.known_usd == pytest.approx(0.5)
    assert rate([node()], [unpriced, REST]) is None
    later = advance(ledger, [node()], [GPU, REST], NOON + 2 * HOUR)
    assert later.usd is None
    assert later.known_usd == pytest.approx(0.5 + 0.5 + 60)


def test_a_clock_that_was_set_back_adds_nothing() -> None:
    ledger = advance(CostLedger.begun(NOON), [node()], [GPU], NOON + HOUR)
    earlier = advance(ledger, [node()], [GPU], NOON)
    assert earlier.usd == pytest.approx(60.0)
    assert advance(earlier, [node()], [GPU], NOON + HOUR).usd == pytest.approx(60.0)


def test_a_new_node_seen_by_a_clock_that_was_set_back_counts_from_its_creation() -> None:
    ledger = advance(CostLedger.begun(NOON), [], [GPU], NOON + HOUR)
    new = node(created=NOON + HOUR + 300)
    ledger = advance(ledger, [new], [GPU], NOON)
    assert advance(ledger, [new], [GPU], NOON + HOUR + 600).usd == pytest.approx(60 * 300 / HOUR)


def test_a_ledger_survives_its_json_and_a_damaged_one_is_an_error() -> None:
    ledger = advance(CostLedger.begun(NOON), [node(run="r")], [GPU, REST], NOON + HOUR)
    assert CostLedger.of(ledger.to_json()) == ledger
    for text in ("", "[]", "{}", ledger.to_json().replace('"schema": 1', '"schema": 2')):
        with pytest.raises(DataError, match="the cost ledger"):
            CostLedger.of(text)


@dataclass
class Machine:
    """A machine of a trace, in seconds since its beginning."""

    pool: str
    start: float
    end: float


def trace(seed: int) -> tuple[list[Machine], list[tuple[float, float]], float]:
    """Return machines, prices of the spot pool from a time on, and the length: half a day to two days."""
    dice = random.Random(seed)  # noqa: S311 - a repeatable trace
    length = dice.uniform(12, 48) * HOUR
    machines: list[Machine] = []
    now = dice.uniform(0, HOUR)
    while now < length:
        until = min(now + dice.uniform(1, 8) * HOUR, length)
        for _ in range(dice.randint(1, 16)):
            pool = dice.choice(["spot", "spot", "on-demand"])
            machines.append(Machine(pool, now + dice.uniform(0, 300), until - dice.uniform(0, 300)))
        now = until + dice.choice([60.0, dice.uniform(0.2, 3) * HOUR])  # a preemption, or a stock-out
    prices = [(0.0, 30.0), *((dice.uniform(0, length), dice.uniform(20, 60)) for _ in range(4))]
    return machines, sorted(prices), length


def bill(machines: list[Machine], prices: list[tuple[float, float]], length: float) -> float:
    """Return what the vendor bills: each second of each machine at the price of that second."""
    total = 0.5 * length / HOUR
    for machine in machines:
        if machine.pool == "on-demand":
            total += 98.0 * (machine.end - machine.start) / HOUR
            continue
        ends = [*(start for start, _ in prices[1:]), length]
        for (start, usd), end in zip(prices, ends, strict=True):
            total += usd * max(min(machine.end, end) - max(machine.start, start), 0.0) / HOUR
    return total


@pytest.mark.parametrize("seed", range(20))
def test_the_meter_agrees_with_the_bill_within_one_percent(seed: int) -> None:
    machines, prices, length = trace(seed)
    ledger, now = CostLedger.begun(NOON), 0.0
    while now < length:
        now = min(now + ROUND_S, length)
        usd = next(price for start, price in reversed(prices) if start <= now)
        tariffs = [
            Tariff(pool="spot", hourly_usd=usd),
            Tariff(pool="on-demand", hourly_usd=98.0),
            Tariff(pool="", hourly_usd=0.5),
        ]
        nodes = [
            LiveNode(uid=str(number), pool=machine.pool, created=NOON + machine.start)
            for number, machine in enumerate(machines)
            if machine.start <= now < machine.end
        ]
        ledger = advance(ledger, nodes, tariffs, NOON + now)
    ledger = advance(ledger, [], tariffs, NOON + length)
    assert ledger.usd == pytest.approx(bill(machines, prices, length), rel=0.01)
