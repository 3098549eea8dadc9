"""Run the endurance tests, one test function after the other, and write a report with what they counted.

    python -m scripts.soak                        everything, in two processes
    python -m scripts.soak --minutes 60           stop to start tests after an hour; call it again to continue
    python -m scripts.soak --report FILE.md       also write the report

What ran is kept in build/soak/results.json, so that a run that was stopped continues. A test function that
failed runs again. Functions that take hours run parameter by parameter. SIGTERM starts no more tests: those
that run end, and their results are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "build" / "soak" / "results.json"
_PYTEST = (sys.executable, "-P", "-m", "pytest", "-q", "-m", "soak", "-n", "0")
_WHOLE = (0, 1, 5)  # exit codes of pytest that ran all tests that it was asked for: passed, failed, none
_TIMEOUT_S = 7200
_BY_PARAMETER = (  # all of their parameters take an hour or more
    "test_a_command_killed_at_any_call_is_recovered",
    "test_a_command_killed_at_any_call_is_recovered_and_leaves_nothing",
    "test_a_run_succeeds_and_leaves_nothing_whatever_fails_at_a_call",
    "test_clusters_survive_thousands_of_wrong_answers",
    "test_gpu_nodes_of_a_killed_up_end_on_every_call",
    "test_many_faulty_wires_to_a_cloud_leave_nothing_twice_and_nothing_behind",
    "test_many_faulty_wires_to_a_cluster_leave_nothing_twice_and_nothing_behind",
)
_MOST_CHARACTERS = 300  # of a reason for which a test was skipped


@dataclass(frozen=True, kw_only=True)
class SoakResult:
    """What one test function did, with all its parameters or, if it takes hours, with one.

    Attributes:
        test: its file and name, and the parameters of one that takes hours.
        date: when it ended, as YYYY-MM-DD HH:MM in UTC.
        commit: the commit that was tested.
        seconds: how long it took.
        passed: parameters that passed.
        failed: parameters that failed.
        skipped: parameters that were skipped.
        lines: what the tests counted with the fixture `tally`, and the reasons of those that were skipped.
    """

    test: str
    date: str
    commit: str
    seconds: float
    passed: int
    failed: int
    skipped: int
    lines: tuple[str, ...] = ()


def _functions(only: Sequence[str]) -> list[str]:
    """Return the test functions that have a soak mark; those that take hours once for each parameter."""
    command = [*_PYTEST, "--collect-only", *only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tests = [line for line in done.stdout.splitlines() if ".py::" in line]
    found = dict.fromkeys(
        test if name.partition("::")[2] in _BY_PARAMETER else name
        for test, name in ((each, each.split("[", 1)[0]) for each in tests)
    )
    if not found:
        raise SystemExit(f"pytest collected no endurance test:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return list(found)


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],  # noqa: S607 - git of the machine
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _read(path: Path) -> list[SoakResult]:
    if not path.is_file():
        return []
    return [
        SoakResult(**{**each, "lines": tuple(each["lines"])})
        for each in json.loads(path.read_text(encoding="utf-8"))
    ]


def _ran(test: str, folder: Path) -> SoakResult:
    """Run a test function in a separate process."""
    report = folder / (re.sub(r"[^A-Za-z0-9]+", "-", test) + ".xml")
    report.unlink(missing_ok=True)
    # pytest ends first, because it ends its children; a killed pytest would leave them.
    command = [*_PYTEST, "--timeout", str(_TIMEOUT_S - 60)]
    command += [
        f"--junitxml={report}",
        "-o",
        "junit_logging=system-out",
        "-o",
        "junit_log_passing_tests=true",
    ]
    began = time.monotonic()
    try:
        done = subprocess.run(
            [*command, test], cwd=ROOT, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
        )
        output, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired:
        output, code = f"{test} ran longer than {_TIMEOUT_S} s", 1
    report.with_suffix(".log").write_text(output, encoding="utf-8")
    passed = failed = skipped = 0
    lines = dict[str, None]()
    cases = ET.parse(report).iter("testcase") if report.is_file() else ()  # noqa: S314 - written by pytest
    for case in cases:
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif (reason := case.find("skipped")) is not None:
            skipped += 1
            lines[f"skipped: {reason.get('message', '')}"[:_MOST_CHARACTERS]] = None
        else:
            passed += 1
        counted = (each for each in case.iter("property") if each.get("name") == "tally")
        lines |= dict.fromkeys(each.get("value", "") for each in counted)
    if code not in _WHOLE:
        # Its parameters that passed are not all of them: the function runs again.
        failed += 1
        lines[f"pytest ended with exit code {code}"] = None
    return SoakResult(
        test=test,
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
        commit=_commit(),
        seconds=round(time.monotonic() - began, 1),
        passed=passed,
        failed=failed or int(passed + skipped == 0),
        skipped=skipped,
        lines=tuple(lines),
    )


def report_of(results: Sequence[SoakResult], expected: Iterable[str]) -> str:
    """Return the report as Markdown: totals, what is missing, and the counts of each test function."""
    missing = sorted(set(expected) - {each.test for each in results})
    passed, failed, skipped = (
        sum(getattr(each, name) for each in results) for name in ("passed", "failed", "skipped")
    )
    hours = sum(each.seconds for each in results) / 3600
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    text = [
        f"# Endurance tests, {max((each.date for each in results), default='never')[:10]}",
        "",
        f"`make soak` on {machine}: {passed} passed, {failed} failed, {skipped} skipped",
        f"in {len(results)} test functions and {hours:.1f} hours. {len(missing)} functions did not run.",
        "",
    ]
    for each in sorted(results, key=lambda result: result.test):
        file, _, name = each.test.partition("::")
        outcome = f"{each.passed} passed"
        outcome += f", {each.failed} FAILED" if each.failed else ""
        outcome += f", {each.skipped} skipped" if each.skipped else ""
        words = name.removeprefix("test_").replace("_", " ")
        took = f"{each.seconds / 60:.1f} min, at {each.commit}"
        text += [
            f"- {words}: **{outcome}**, {took} (`{file.removeprefix('tests/')}`)",
            *(f"    - {line.strip()}" for line in each.lines),
        ]
    if missing:
        text += ["", "Not run:", "", *(f"- `{each.removeprefix('tests/')}`" for each in missing)]
    return "\n".join(text) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what has no result yet, and return 1 if something failed or did not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("only", nargs="*", help="files or folders of tests; default: all")
    parser.add_argument("--workers", type=int, default=2, help="test functions at a time")
    parser.add_argument("--minutes", type=float, default=1e9, help="start no test after this time")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept")
    parser.add_argument("--report", type=Path, help="write the report to this file")
    arguments = parser.parse_args(argv)
    functions = _functions(arguments.only)
    kept = {each.test: each for each in _read(arguments.results)}
    waiting = [test for test in functions if test not in kept or kept[test].failed]
    arguments.results.parent.mkdir(parents=True, exist_ok=True)
    until, lock, stopped = time.monotonic() + arguments.minutes * 60, Lock(), Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    print(f"{len(functions)} test functions, {len(waiting)} to run", flush=True)

    def run(test: str) -> None:
        if stopped.is_set() or time.monotonic() > until:
            return
        result = _ran(test, arguments.results.parent)
        with lock:
            kept[test] = result
            texts = [asdict(each) for _, each in sorted(kept.items())]
            arguments.results.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
        print(
            f"{'FAILED' if result.failed else 'passed'} {test} in {result.seconds:.0f} s "
            f"({result.passed} passed, {result.failed} failed, {result.skipped} skipped)",
            flush=True,
        )

    with ThreadPoolExecutor(arguments.workers) as pool:
        list(pool.map(run, waiting))
    results = [kept[test] for test in functions if test in kept]
    if arguments.report is not None:
        arguments.report.write_text(report_of(results, functions), encoding="utf-8")
    bad = [each.test for each in results if each.failed]
    print(
        f"{len(results)} of {len(functions)} functions ran, {len(bad)} with failures: {', '.join(bad) or '-'}"
    )
    return 1 if bad or len(results) < len(functions) else 0


if __name__ == "__main__":
    sys.exit(main())
