"""`python -m benchmarks.page`: the time until `cloudrec ui` shows a home with many runs, in a browser.

Each time, a server starts that has read nothing, and Chromium loads its list of runs; the time is that of the
browser's load event after the start of the navigation. The reference is the same page of a home with one run.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from playwright.sync_api import Browser, sync_playwright

from benchmarks.machine import describe_machine
from benchmarks.status import write_ledger
from cloudrec.launchers.base.run_folder import create_run
from cloudrec.launchers.base.runspec import RunSpec
from scripts.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS, STEPS, REPEATS = 1000, 1000, 5
LIMIT_S = 1.0


def fill(home: Path, runs: int) -> None:
    """Make runs that have ended, with ten lines of ledger and the metrics of so many steps each."""
    (home / "runs").mkdir(parents=True, mode=0o700)
    for number in range(runs):
        run, began = create_run(home / "runs", RunSpec(name=f"run-{number:04}")), 1.79e9 + number * 1000
        write_ledger(run, began=began, lines=10)
        lines: list[dict[str, object]] = [
            {"kind": "start", "step": 0, "time": began, "total_steps": STEPS},
            *(
                {
                    "kind": "train",
                    "step": step,
                    "loss": 0.7 / step,
                    "samples": step * 10,
                    "time": began + step,
                }
                for step in range(1, STEPS + 1)
            ),
        ]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@contextlib.contextmanager
def serve(home: Path) -> Iterator[str]:
    """Start `cloudrec ui`, and return the link that it prints."""
    process = subprocess.Popen(
        [sys.executable, "-m", "cloudrec", "ui", "--no-browser", "--port", "0"],
        env={**os.environ, "CLOUDREC_HOME": str(home), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    output: IO[str] = process.stdout  # type: ignore[assignment] # a pipe has it
    try:
        yield output.readline().strip()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def first_load(browser: Browser, home: Path) -> tuple[float, int]:
    """Return the seconds until the list of a new server is loaded, and the bytes of all its files."""
    with serve(home) as link:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{link.partition('/?')[0]}/none")  # without the cookie: a refusal, and the browser is warm
        page.goto(link)
        (seconds, size) = page.evaluate(
            "[performance.getEntriesByType('navigation')[0].loadEventEnd / 1000,"
            " performance.getEntries().reduce((sum, each) => sum + (each.encodedBodySize || 0), 0)]"
        )
        context.close()
    return seconds, size


def main() -> int:
    """Print the table; return 1 if the list of many runs takes longer than the limit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", allow_abbrev=False)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    repeats = parser.parse_args().repeats
    print(describe_machine())
    found: dict[int, list[tuple[float, int]]] = {1: [], RUNS: []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        for runs in found:
            fill(Path(folder) / str(runs), runs)
            (Path(folder) / str(runs)).chmod(0o700)
        for _ in range(repeats):  # alternating
            for runs, times in found.items():
                times.append(first_load(browser, Path(folder) / str(runs)))
        browser.close()
    print(f"{'runs':>6} {'median s':>9} {'from':>6} {'to':>6} {'bytes':>8}")
    medians = {}
    for runs, times in found.items():
        seconds = [each for each, _ in times]
        medians[runs] = statistics.median(seconds)
        line = f"{runs:6} {medians[runs]:9.2f} {min(seconds):6.2f} {max(seconds):6.2f}"
        print(f"{line} {max(size for _, size in times):8}")
    print(f"{RUNS} runs take {medians[RUNS] / medians[1]:.2f} times one run; limit {LIMIT_S:g} s")
    return 0 if medians[RUNS] <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
