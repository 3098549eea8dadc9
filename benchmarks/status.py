"""`python -m benchmarks.status`: the CPU time of `cloudrec status` with many runs and long ledgers.

Each command is a process; its time is that which the kernel counts, user and system, as a median. A ledger
has mostly lines of ranks: 64 ranks begin and end in each attempt, and then all are started again.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.machine import describe_machine
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec

RUNS, LINES = 200, 200_000
RANKS = 64
REPEATS = 5
LIMIT_S = 0.3


def fill(home: Path, *, runs: int, lines: int, longest: int = 1) -> None:
    """Make runs that have ended; the newest `longest` of them have ledgers of so many lines."""
    (home / "runs").mkdir(parents=True, mode=0o700)
    for number in range(runs):
        run = create_run(home / "runs", RunSpec(name=f"run-{number:03}"))
        write_ledger(run, began=1.79e9 + number * 1000, lines=lines if number >= runs - longest else 6)


def write_ledger(run: RunFolder, *, began: float, lines: int) -> None:
    """Write the ledger of a run that was restarted often, and has ended."""
    rows: list[dict[str, object]] = [{"time": began, "event": "submitted", "launch": 1, "launcher": "local"}]
    rows.append({"time": began + 1, "event": "started", "launch": 1, "pid": 7, "command": "x"})
    for number in range(lines - 3):
        attempt, place = divmod(number, 2 * RANKS + 1)
        again = {"event": "restarting", "launch": 1, "attempt": attempt + 1, "cause": "rank 3: signal 9"}
        rank = {"event": "rank_started", "launch": 1, "attempt": attempt, "rank": place, "pid": 1000 + place}
        if place >= RANKS:
            rank |= {"event": "rank_ended", "rank": place - RANKS, "exit_code": -9}
        rows.append({"time": began + 2 + number, **(again if place == 2 * RANKS else rank)})
    rows.append({"time": began + lines, "event": "succeeded", "launch": 1, "cause": None})
    run.ledger.path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def cpu_s(home: Path, *arguments: str) -> float:
    """Return the CPU seconds of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "cloudrec", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # a run without output has no logs
        env={**os.environ, "CLOUDREC_HOME": str(home)},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Print the table; return 1 if `status` takes longer than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.status", allow_abbrev=False)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    repeats = parser.parse_args().repeats
    print(describe_machine())
    print(f"{'runs':>6} {'lines':>9} {'first s':>8} {'later s, median':>16}  command")
    slowest = 0.0
    for runs, lines, longest in ((1, 6, 0), (RUNS, 6, 0), (RUNS, LINES // RUNS, RUNS), (RUNS, LINES, 1)):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "home"
            home.mkdir(mode=0o700)
            fill(home, runs=runs, lines=lines, longest=longest)
            total = longest * lines + (runs - longest) * 6
            for arguments in (("status",), ("logs", f"run-{runs - 1:03}")) if runs > 1 else (("status",),):
                first = cpu_s(home, *arguments)
                later = statistics.median(cpu_s(home, *arguments) for _ in range(repeats))
                print(f"{runs:6} {total:9} {first:8.2f} {later:16.2f}  {arguments[0]}")
                slowest = max(slowest, later) if arguments == ("status",) else slowest
    print(f"limit of status: {LIMIT_S:g} s")
    return 0 if slowest <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
