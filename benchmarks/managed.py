"""`python -m benchmarks.managed`: what the keeper's policy achieves on traces of capacity, beside an oracle.

For each set of traces, the policy of the keeper is played beside staying in one zone and switching with
Young/Daly intervals, and beside an oracle that knows every end; and with a deadline beside the published
"uniform progress". `--traces FOLDER` plays other traces, such as those of
github.com/skypilot-org/spot-traces.

Two kinds of traces are made. "Memoryless": times with and without capacity have exponential lengths, so that
the past does not show what is next; this is the hardest case. "Regimes", as the public traces show them:
hours with capacity, hours without it, and hours in which it comes and goes within minutes.

`--stand-ins HOURS` plays the first memoryless set once more with the keeper as it is shipped: its rounds run
against the stand-ins of AWS and Kubernetes, whose clock is virtual and whose zones have the capacity of the
traces. Pods are simulated there; while they run, the simulator's model of training counts the
work. The bill is the stand-in's.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.app.planning.traces import read_traces
from cloudrec.planning.spot.compare import Scenario, compare
from cloudrec.planning.spot.simulate import Rules
from cloudrec.planning.spot.traces import Trace
from cloudrec.planning.spot.training import SaveTimes, Training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.planning.spot.compare import Result

_GAP_S = 60.0
_HOURS = 96.0
_HOUR_S = 3600.0
_SAVER = SaveTimes(stall_s=0.5, commit_s=30.0, slowdown=0.1)
_ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
_TYPE = "p4d.24xlarge"
_PAUSE_S = 30.0  # between two rounds of the keeper, in virtual time


@dataclass(frozen=True)
class TraceSet:
    """Traces that are played together.

    Attributes:
        name: what they are.
        traces: one for each zone and machine.
    """

    name: str
    traces: tuple[Trace, ...]


@dataclass(frozen=True)
class Regime:
    """How the capacity of a zone behaves for some hours.

    Attributes:
        share: its share of the time.
        lasts_h: its mean length, in hours.
        up_s: the mean time with capacity, in seconds.
        down_s: the mean time without it, in seconds.
    """

    share: float
    lasts_h: float
    up_s: float
    down_s: float


def zone(steady: float, unstable: float, *, calm: bool = False) -> tuple[Regime, ...]:
    """Return the regimes of a zone.

    Args:
        steady: the share of the time in which capacity lasts for hours.
        unstable: the share in which it comes and goes within minutes. In the rest there is almost none.
        calm: whether capacity lasts for days, as in a region with much of it.
    """
    dry = 1 - steady - unstable
    if calm:
        return (
            Regime(steady, 48, 72_000, 600),
            Regime(unstable, 2, 1_500, 1_500),
            Regime(dry, 2, 600, 21_600),
        )
    return (
        Regime(steady, 10, 10_800, 900),
        Regime(unstable, 3, 1_500, 1_500),
        Regime(dry, 12, 600, 21_600),
    )


def in_regimes(
    zones: Sequence[tuple[Regime, ...]], *, seed: int, gap_s: float = 200.0, hours: float = 336.0
) -> tuple[Trace, ...]:
    """Return made traces of zones whose regimes alternate. Lengths are log-normal with a deviation of 1."""
    found = []
    for number, regimes in enumerate(zones):
        chance = random.Random(f"{number} {seed}")  # noqa: S311 - made capacity

        def steps(mean_s: float, chance: random.Random = chance) -> int:
            return max(1, round(chance.lognormvariate(math.log(mean_s) - 0.5, 1.0) / gap_s))

        data, length = list[int](), int(hours * _HOUR_S / gap_s)
        regime = chance.choices(regimes, [each.share for each in regimes])[0]
        while len(data) < length:
            end = len(data) + steps(regime.lasts_h * _HOUR_S)
            is_up = chance.random() < regime.up_s / (regime.up_s + regime.down_s)
            while len(data) < end:
                data += [int(is_up)] * min(steps(regime.up_s if is_up else regime.down_s), end - len(data))
                is_up = not is_up
            others = [each for each in regimes if each is not regime]
            regime = chance.choices(others, [each.share / each.lasts_h for each in others])[0]
        found.append(Trace(f"zone-{number}", gap_s, tuple(data[:length])))
    return tuple(found)


def made(zones: Sequence[str], *, up_s: float, down_s: float, seed: int) -> tuple[Trace, ...]:
    """Return made traces without a memory: times with and without capacity of exponential lengths."""
    found = []
    for zone in zones:
        chance = random.Random(f"{zone}{seed}")  # noqa: S311 - made capacity
        data, is_up = list[int](), chance.random() < up_s / (up_s + down_s)
        while len(data) * _GAP_S < _HOURS * _HOUR_S:
            length = chance.expovariate(1 / (up_s if is_up else down_s))
            data += [int(is_up)] * max(1, round(length / _GAP_S))
            is_up = not is_up
        found.append(Trace(zone, _GAP_S, tuple(data[: int(_HOURS * _HOUR_S / _GAP_S)])))
    return tuple(found)


def sets(folder: Path | None) -> list[TraceSet]:
    """Return the sets: those of a folder, by the region of each file's name, or the made ones."""
    if folder is not None:
        return [TraceSet(folder.name, tuple(read_traces(folder)))]
    regions = [f"{region}{letter}" for region in ("us-east-1", "us-west-2") for letter in "abc"]
    calm = zone(0.93, 0.05, calm=True)
    busy = [zone(0.05, 0.2), zone(0.35, 0.35), zone(0.6, 0.2), zone(0.25, 0.25)]
    return [
        TraceSet("regimes: calm, 3 zones", in_regimes([calm] * 3, seed=1)),
        TraceSet("regimes: busy, 4 zones", in_regimes(busy, seed=2)),
        TraceSet("regimes: 3 regions, 9 zones", in_regimes([*busy, *([calm] * 5)], seed=3)),
        TraceSet(
            "regimes: scarce, 2 zones x 2",
            in_regimes([zone(0.25, 0.3), zone(0.15, 0.3), zone(0.1, 0.2), zone(0.3, 0.2)], seed=4),
        ),
        TraceSet(
            "regimes: 16 nodes, 3 zones",
            in_regimes([zone(0.2, 0.2), zone(0.15, 0.2), zone(0.2, 0.2)], seed=5),
        ),
        TraceSet(
            "regimes: 4 nodes, 3 zones",
            in_regimes([zone(0.35, 0.25), zone(0.8, 0.15), zone(0.7, 0.2)], seed=6),
        ),
        # Public spot traces have 0.55 to 0.61 ends an hour of one machine; several machines end sooner.
        TraceSet("memoryless: 1 node, 3 zones", made(_ZONES, up_s=6_200, down_s=3_600, seed=1)),
        TraceSet("memoryless: 4 nodes, 3 zones", made(_ZONES, up_s=3_000, down_s=3_600, seed=2)),
        TraceSet("memoryless: 4 nodes, 6 zones", made(regions, up_s=3_000, down_s=3_600, seed=3)),
        TraceSet("memoryless: scarce, 6 zones", made(regions, up_s=2_400, down_s=9_000, seed=4)),
    ]


def _row(name: str, restart_s: float, result: Result) -> dict[str, Any]:
    return {"set": name, "restart_s": restart_s, **asdict(result)}


def played(name: str, scenario: Scenario) -> list[dict[str, Any]]:
    """Return a row for each policy."""
    return [_row(name, scenario.rules.restart_s, result) for result in compare(scenario)]


def _scenarios(traces: tuple[Trace, ...]) -> list[Scenario]:
    length_h = min(trace.length_s for trace in traces) / _HOUR_S
    base = Scenario(traces=traces, rules=Rules(), saver=_SAVER, hours=min(48.0, length_h))
    slow = replace(base, rules=Rules(restart_s=900.0))
    found = [base, slow]
    if length_h >= 30:
        found.append(replace(base, hours=24.0, deadline_hours=30.0, starts=30))
    return found


def through_stand_ins(traces: tuple[Trace, ...], hours: float) -> dict[str, Any]:
    """Play traces with the shipped keeper through the stand-ins; return what it achieved."""
    # Needs pytest and the stand-ins, which the rest does not.
    import pytest  # noqa: PLC0415

    from tests.contract.aws.support_trace import traced  # noqa: PLC0415
    from tests.contract.aws.test_managed import on, submit  # noqa: PLC0415

    began = time.monotonic()
    training = Training(saver=_SAVER)
    rules = Rules()
    with (
        tempfile.TemporaryDirectory() as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
        traced(Path(folder), monkeypatch) as begin,
    ):
        trace = begin(managed=True, capacity="spot", instance_types=[_TYPE])
        trace.server.control(bookkeeping={"stop_code": 75})
        trace.aws.control(
            capacity_trace=[
                {
                    "zone": each.name,
                    "instance_type": _TYPE,
                    "capacity": "spot",
                    "gap_seconds": each.gap_s,
                    "data": list(each.data),
                }
                for each in traces
            ]
        )
        first_usd, start = trace.billed(), trace.passed
        submit(trace, "run")
        starts_at: float | None = None
        moves = rounds = 0
        while (now := trace.passed - start) < hours * _HOUR_S:
            trace.round()
            rounds += 1
            runs = bool(on(trace, "run"))
            if runs and starts_at is None and not training.is_running:
                starts_at, moves = now + rules.restart_s, moves + 1
            if not runs:
                if training.is_running:
                    # The nodes are drained at the notice: the trainer has its two minutes to save.
                    training.stop(now)
                starts_at = None
            if starts_at is not None and now >= starts_at:
                training.start(now, 1.0)
                starts_at = None
            if training.is_running:
                training.advance(now)
            trace.advance(_PAUSE_S)
        usd = trace.billed() - first_usd
    useful = max(training.kept, training.work if training.is_running else 0.0)
    return {
        "hours": hours,
        "goodput": useful / (hours * _HOUR_S),
        "usd": usd,
        "moves": moves,
        "rounds": rounds,
        "wall_s": time.monotonic() - began,
    }


def main() -> int:
    """Print a table, or with --json the rows as one JSON document."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.managed", description=__doc__)
    parser.add_argument("--traces", type=Path, help="folder with one JSON file a zone and machine")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--stand-ins", type=float, metavar="HOURS", help="also play so many hours there")
    options = parser.parse_args()
    chosen = sets(options.traces)
    rows = [
        row for each in chosen for scenario in _scenarios(each.traces) for row in played(each.name, scenario)
    ]
    document: dict[str, Any] = {"rows": rows}
    if options.stand_ins:
        traces = next(each.traces for each in sets(None) if each.name.startswith("memoryless"))
        beside = compare(
            Scenario(traces=traces, rules=Rules(), saver=_SAVER, hours=options.stand_ins, starts=1)
        )
        document["stand_ins"] = {
            **through_stand_ins(traces, options.stand_ins),
            "simulated": [asdict(result) for result in beside],
        }
    if options.json:
        print(json.dumps(document, indent=1))
    else:
        _print(document)
    return 0


def _print(document: dict[str, Any]) -> None:
    print(f"{'set':<29} {'R':>4} {'policy':<20} {'goodput':>8} {'of oracle':>9} {'cost':>6} {'met':>6}")
    for row in document["rows"]:
        share = f"{row['of_oracle']:.1%}" if row["of_oracle"] is not None else "-"
        cost = row["cost_of_oracle"] if row["cost_of_oracle"] is not None else row["usd_per_hour"]
        met = f"{row['met']}/{row['runs']}" if row["met"] is not None else "-"
        print(
            f"{row['set']:<29} {row['restart_s']:>4.0f} {row['policy']:<20} {row['goodput']:>8.1%} "
            f"{share:>9} "
            f"{'-' if cost is None else format(cost, '.3f'):>6} {met:>6}"
        )
    print("cost: of an hour of work, beside the oracle's; with a deadline, beside the on-demand price")
    if played_there := document.get("stand_ins"):
        best = next(each for each in played_there["simulated"] if each["policy"] == "oracle")
        ours = next(each for each in played_there["simulated"] if each["policy"] == "cloudrec")
        print(
            f"through the stand-ins, {played_there['hours']:g} h: goodput {played_there['goodput']:.1%} "
            f"({played_there['goodput'] / best['goodput']:.1%} of the oracle's; the simulator's policy "
            f"{ours['goodput']:.1%}), ${played_there['usd']:.2f}, {played_there['moves']} starts, "
            f"{played_there['rounds']} rounds in {played_there['wall_s']:.0f} s"
        )


if __name__ == "__main__":
    sys.exit(main())
