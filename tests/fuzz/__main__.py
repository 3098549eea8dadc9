"""Run generated bad inputs through the real entry points, and count what they must never do.

    python -m tests.fuzz --count 100000 [--seed 1] [--area home]
    python -m tests.fuzz --replay 1000037       the inputs of one batch again, with its faults

A fault is an input that ends in a traceback, takes longer than 2 s twice in a row, ends with an exit code
that is not documented, or writes a file outside the home and the run's folder.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.areas import AREAS, described
from tests.fuzz.inputs import BadInput
from tests.fuzz.world import Fault, World

BATCH = 100
_MEMORY = Path("/dev/shm")  # noqa: S108 - folders are made and removed ten times faster than on a disk
_QUIET = {
    "deadline": None,
    "database": None,
    "phases": [Phase.generate],
    "suppress_health_check": list(HealthCheck),
}


def inputs(number: int, areas: Sequence[str] = (), size: int = BATCH) -> list[BadInput]:
    """Return a batch of inputs; the same number gives the same inputs."""
    found: list[BadInput] = []
    weighted = [AREAS[name][0]() for name in areas or AREAS for _ in range(1 if areas else AREAS[name][1])]

    @seed(number)
    @settings(max_examples=size, **_QUIET)  # type: ignore[arg-type] # of different types
    @given(st.one_of(weighted))
    def collect(each: BadInput) -> None:
        found.append(each)

    collect()
    return found


def batches(first: int, areas: Sequence[str]) -> Iterator[tuple[int, list[BadInput]]]:
    """Yield batches with their numbers, without end."""
    number = first
    while True:
        yield number, inputs(number, areas)
        number += 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the inputs, print a report, and return the exit code of the process."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="the first batch's number, times a million")
    parser.add_argument("--area", action="append", default=[], choices=sorted(AREAS))
    parser.add_argument(
        "--replay", metavar="BATCH", help="run one batch again and print each input with a fault"
    )
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after this time")
    parser.add_argument(
        "--folder", type=Path, default=_MEMORY if _MEMORY.is_dir() else None, help="where the inputs run"
    )
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=arguments.folder) as folder:
        world = World(Path(folder))
        first = int(arguments.replay) if arguments.replay else arguments.seed * 1_000_000
        return _run(world, arguments, first)


def _run(world: World, arguments: argparse.Namespace, first: int) -> int:
    counts: Counter[str] = Counter()
    places: dict[tuple[str, str], tuple[int, Fault]] = {}
    seen: Counter[tuple[str, str]] = Counter()
    begun, slowest = time.monotonic(), 0.0
    for number, batch in batches(first, arguments.area):
        for each in batch:
            started = time.monotonic()
            faults = world.judge(each)
            slowest = max(slowest, time.monotonic() - started)
            counts[each.area] += 1
            for fault in faults:
                key = (fault.kind, fault.place if fault.kind != "slow" else " ".join(each.command))
                places.setdefault(key, (number, fault))
                seen[key] += 1
        is_over = counts.total() >= arguments.count or time.monotonic() - begun > arguments.minutes * 60
        if counts.total() % (50 * BATCH) < BATCH:
            print(f"{counts.total():,} inputs, {seen.total()} faults at {len(seen)} places", flush=True)
        if is_over or arguments.replay:
            break
    for (kind, place), (number, fault) in places.items():
        print(f"{kind} ({seen[kind, place]} times, --replay {number}): {place}")
        print(f"  {described(fault.given)[:1500]}")
    areas = ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
    kinds = Counter[str]()
    for (kind, _), count in seen.items():
        kinds[kind] += count
    took = time.monotonic() - begun
    print(
        f"{counts.total():,} bad inputs ({areas}) from seed {first // 1_000_000} in {took:.0f} s: "
        f"{kinds['traceback']} tracebacks, {kinds['slow']} longer than 2 s, {kinds['outside']} files "
        f"outside, {kinds['code']} undocumented exit codes; the slowest took {slowest:.2f} s"
    )
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())
