"""Run generated bad inputs through the real entry points, and count what they must never do.

    python -m tests.fuzz --count 100000 [--seed 1] [--area home] [--workers 2] [--report FILE]
    python -m tests.fuzz --replay 1000037       the inputs of one batch again, with its faults

A fault is an input that ends in a traceback, takes longer than 2 s twice in a row, ends with an exit code
that is not documented, or writes a file outside the home and the run's folder.
"""

from __future__ import annotations

import argparse
import contextlib
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from tests.fuzz.areas import AREAS, described
from tests.fuzz.batches import BATCH, Judged, judged
from tests.fuzz.world import Fault

_MEMORY = Path("/dev/shm")  # noqa: S108 - folders are made and removed ten times faster than on a disk
_PACKAGES = ("hypothesis", "click", "pydantic", "PyYAML")


class Tally:
    """The counts of all batches."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[tuple[str, str], tuple[int, Fault]] = {}
        self.seen: Counter[tuple[str, str]] = Counter()
        self.slowest = 0.0
        self.begun = time.monotonic()

    def add(self, batch: Judged) -> None:
        """Count a batch."""
        self.counts += batch.counts
        self.slowest = max(self.slowest, batch.slowest)
        for fault in batch.faults:
            key = (fault.kind, fault.place if fault.kind != "slow" else " ".join(fault.given.command))
            self.places.setdefault(key, (batch.number, fault))
            self.seen[key] += 1

    def summary(self, seed: int) -> str:
        """Return the counts as a line."""
        areas = ", ".join(f"{name} {count:,}" for name, count in sorted(self.counts.items()))
        kinds = Counter[str]()
        for (kind, _), count in self.seen.items():
            kinds[kind] += count
        return (
            f"{self.counts.total():,} bad inputs ({areas}) from seed {seed} in "
            f"{time.monotonic() - self.begun:.0f} s: "
            f"{kinds['traceback']} tracebacks, {kinds['slow']} longer than 2 s twice in a row, "
            f"{kinds['outside']} files outside, {kinds['code']} undocumented exit codes; "
            f"the slowest try took {self.slowest:.2f} s"
        )

    def report(self, seed: int, arguments: Sequence[str]) -> str:
        """Return a report in Markdown."""
        commit = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        versions = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
        lines = [
            f"# Generated bad inputs, {datetime.now(UTC):%Y-%m-%d}",
            "",
            f"Command: `python -m tests.fuzz {' '.join(arguments)}`",
            "",
            f"Commit: {commit or 'unknown'}. Python {platform.python_version()}, {versions}.",
            "",
            *self.summary(seed).replace(": ", ":\n", 1).replace(" from seed", "\nfrom seed").splitlines(),
            "",
            "| Area | Inputs |",
            "|---|---|",
            *(f"| {name} | {count:,} |" for name, count in sorted(self.counts.items())),
            "",
        ]
        if self.places:
            lines += ["## Faults", ""]
            lines += [
                f"- {kind}, {self.seen[kind, place]} times, batch {number}: `{place[:200]}`"
                for (kind, place), (number, _) in self.places.items()
            ]
        return "\n".join(lines).rstrip() + "\n"


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
    parser.add_argument("--workers", type=int, default=1, help="processes that share the batches")
    parser.add_argument("--report", type=Path, metavar="FILE", help="also write a report in Markdown")
    parser.add_argument(
        "--folder", type=Path, default=_MEMORY if _MEMORY.is_dir() else None, help="where the inputs run"
    )
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = parser.parse_args(words)
    if arguments.workers < 1:
        parser.error(f"--workers is {arguments.workers}, and must be at least 1")
    first = int(arguments.replay) if arguments.replay else arguments.seed * 1_000_000
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=arguments.folder) as folder:
        tally = _run(arguments, first, Path(folder))
    for (kind, place), (number, fault) in tally.places.items():
        print(f"{kind} ({tally.seen[kind, place]} times, --replay {number}): {place}")
        print(f"  {described(fault.given)[:1500]}")
    print(tally.summary(first // 1_000_000))
    if arguments.report:
        arguments.report.write_text(tally.report(first // 1_000_000, words), encoding="utf-8")
    return 1 if tally.seen else 0


def _run(arguments: argparse.Namespace, first: int, folder: Path) -> Tally:
    tally, workers = Tally(), 1 if arguments.replay else arguments.workers
    with contextlib.closing(judged(first, arguments.area, workers, folder)) as batches:
        for batch in batches:
            tally.add(batch)
            total = tally.counts.total()
            if total % (50 * BATCH) < BATCH:
                print(f"{total:,} inputs, {tally.seen.total()} faults", flush=True)
            is_late = time.monotonic() - tally.begun > arguments.minutes * 60
            if total >= arguments.count or is_late or arguments.replay:
                break
    return tally


if __name__ == "__main__":
    sys.exit(main())
