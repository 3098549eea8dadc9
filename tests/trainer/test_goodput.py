"""Goodput: lost work, restarts and waits are distinguished, also with wrong clocks."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from cloudrec_contract.interval import Uptime
from trainer.base.errors import NonFiniteLossError, PeerError
from trainer.report.clock import SystemClock
from trainer.report.goodput import AttemptRecord, GoodputParts, Mark, Spent, account
from trainer.report.ledger import GoodputLedger, read_ledger


@dataclass
class ManualClock:
    """A machine whose time is set by hand; several processes live on it, one after the other."""

    boot_id: str = "boot-1"
    process_start: float = 100.0
    now: float = 100.0
    day: float = 1_000_000.0  # the time of day when the machine was switched on

    def boot(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.day + self.now

    def start_process(self) -> None:
        self.process_start = self.now


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def _open(path: Path, clock: ManualClock, *, restarted: bool = False) -> GoodputLedger:
    clock.start_process()
    return GoodputLedger(path, active=True, restarted=restarted, clock=clock)


def _steps(ledger: GoodputLedger, clock: ManualClock, step: int, seconds: float, wait: float = 0.0) -> None:
    """Work up to a step, which takes some seconds, of which some are a wait for data."""
    clock.now += seconds
    ledger.spent.steps += seconds
    ledger.spent.data_wait += wait
    ledger.mark(step)


def _save(ledger: GoodputLedger, clock: ManualClock, step: int, seconds: float) -> None:
    clock.now += seconds
    ledger.saved(step, stall_s=seconds, write_s=seconds)


def _attempt(clock: ManualClock, *, restarted: bool = False) -> AttemptRecord:
    return AttemptRecord(restarted=restarted, boot=clock.boot_id, boot_s=clock.now, time=clock.wall())


def test_the_time_of_an_uninterrupted_run_is_fully_attributed(tmp_path: Path, clock: ManualClock) -> None:
    ledger = _open(tmp_path / "goodput.jsonl", clock)
    clock.now += 7
    ledger.begin(0)
    _steps(ledger, clock, 10, 20, wait=3)
    _save(ledger, clock, 10, 2)
    clock.now += 4
    ledger.spent.evaluation += 4
    clock.now += 1  # a look at a clock, a line printed
    assert ledger.totals() == GoodputParts(
        productive=17, checkpoint=2, restart=7, data_wait=3, evaluation=4, idle=1
    )
    assert ledger.totals().total == 34
    assert ledger.totals().fraction == 0.5


def test_work_after_the_checkpoint_resumed_from_is_lost(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    _save(ledger, clock, 10, 1)
    _steps(ledger, clock, 14, 20)  # and then it is killed
    clock.now += 5
    ledger = _open(path, clock, restarted=True)
    clock.now += 6
    ledger.begin(10)
    _steps(ledger, clock, 20, 40)
    assert ledger.totals() == GoodputParts(productive=90, lost=20, checkpoint=1, restart=11)


def test_a_checkpoint_counts_from_its_snapshot_even_if_committed_late(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    _steps(ledger, clock, 11, 0.5)
    ledger.cut(11)
    _steps(ledger, clock, 20, 30)
    ledger.saved(20, stall_s=0.25, write_s=30)
    _steps(ledger, clock, 22, 4)
    ledger = _open(path, clock, restarted=True)
    ledger.begin(11)
    assert ledger.totals() == GoodputParts(productive=50.5, lost=34)


def test_steps_since_the_last_mark_are_lost_if_a_stop_cannot_save(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    _save(ledger, clock, 10, 1)
    _steps(ledger, clock, 11, 0.25)
    ledger.end("stopped", saved=False)
    ledger = _open(path, clock)
    ledger.begin(10)
    assert ledger.totals() == GoodputParts(productive=50, checkpoint=1, lost=0.25)


def test_an_unfinished_pause_is_idle_time(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    ledger.end("stopped", saved=True)
    clock.now += 86_400
    ledger = _open(path, clock)
    ledger.begin(10)
    assert ledger.totals() == GoodputParts(productive=50, idle=86_400)


def test_falling_back_to_an_older_checkpoint_loses_the_work_of_several_attempts(clock: ManualClock) -> None:
    first, second, third = (_attempt(clock) for _ in range(3))
    first.begun, first.elapsed = 0.0, 30.0
    first.marks = [Mark(10.0, 5, Spent(steps=10.0)), Mark(30.0, 10, Spent(steps=30.0))]
    second.begun, second.first_step, second.elapsed, second.boot_s = 1.0, 10, 21.0, first.boot_s + 30
    second.marks = [Mark(21.0, 15, Spent(steps=20.0))]
    third.begun, third.first_step, third.elapsed, third.boot_s = 2.0, 5, 2.0, second.boot_s + 21
    assert account([first, second, third]) == GoodputParts(productive=10, lost=40, restart=3)


def test_an_attempt_without_a_step_is_restart_time(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    _save(ledger, clock, 10, 0)
    ledger = _open(path, clock, restarted=True)  # killed while it starts
    clock.now += 9
    ledger = _open(path, clock, restarted=True)
    clock.now += 3
    ledger.begin(10)
    assert ledger.totals() == GoodputParts(productive=50, restart=12)
    assert ledger.uptimes == [Uptime(50, lost=True)]


def test_jumps_of_the_wall_clock_are_tolerated(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    clock.day -= 10_000_000  # the clock is set
    clock.now += 5
    ledger = _open(path, clock, restarted=True)
    ledger.begin(10)
    clock.day += 30_000_000
    _steps(ledger, clock, 20, 50)
    assert ledger.totals() == GoodputParts(productive=100, restart=5)


@pytest.mark.parametrize(("shift", "gap"), [(3600, 3600), (-3600, 0)])
def test_on_another_machine_wall_clock_times_are_used_and_never_negative(
    tmp_path: Path, clock: ManualClock, shift: float, gap: float
) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    ledger.end("stopped", saved=True)
    other = ManualClock(boot_id="boot-2", now=17.0, day=clock.wall() + shift - 17.0)
    ledger = _open(path, other)
    ledger.begin(10)
    assert ledger.totals() == GoodputParts(productive=50, idle=gap)


def test_a_process_that_runs_twice_is_not_counted_twice(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    for first_step in (0, 10):
        ledger = GoodputLedger(path, active=True, clock=clock)  # of one process start
        ledger.begin(first_step)
        _steps(ledger, clock, first_step + 10, 50)
        ledger.end("stopped", saved=True)
    assert ledger.totals() == GoodputParts(productive=100)


def test_a_new_run_after_a_finished_one_starts_from_zero(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    for _ in range(2):
        ledger = _open(path, clock)
        ledger.begin(0)
        _steps(ledger, clock, 10, 50)
        ledger.end("finished", saved=True)
    assert ledger.totals() == GoodputParts(productive=50)


def test_truncated_and_foreign_lines_are_skipped(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    with path.open("ab") as file:
        file.write(b'{"kind": "mark", "elapsed": 9\n[]\n{"kind": "mark"}\n\xff\xfe\n{"kind": "mark", "ela')
    clock.now += 5
    ledger = _open(path, clock)
    ledger.begin(10)
    _steps(ledger, clock, 20, 10)
    assert ledger.totals() == GoodputParts(productive=60, idle=5)
    assert [attempt.elapsed for attempt in read_ledger(path)[0]] == [50, 10]


def test_an_unwritable_ledger_is_warned_about_once(
    tmp_path: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = _open(tmp_path, clock)  # a folder
    ledger.begin(0)
    _steps(ledger, clock, 10, 50)
    assert ledger.totals() == GoodputParts(productive=50)
    assert len(caplog.records) == 1
    assert "cannot be written, so goodput is not kept" in caplog.text


def test_marks_become_less_frequent_with_the_age_of_an_attempt(tmp_path: Path, clock: ManualClock) -> None:
    path = tmp_path / "goodput.jsonl"
    ledger = _open(path, clock)
    ledger.begin(0)
    for step in range(1, 10_001):  # ten days
        _steps(ledger, clock, step, 86.4)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) < 700
    assert clock.now - clock.process_start - lines[-1]["elapsed"] < 0.011 * 864_000


def test_the_ledger_yields_the_cost_of_saves_and_the_ends_of_attempts(
    tmp_path: Path, clock: ManualClock
) -> None:
    path = tmp_path / "goodput.jsonl"
    ends: tuple[Callable[[GoodputLedger], None], ...] = (
        lambda ledger: ledger.end("stopped", saved=True),
        lambda ledger: ledger.end("stopped", saved=False),  # a notice with too little time
        lambda ledger: ledger.__exit__(PeerError, PeerError("gone"), None),
        lambda ledger: ledger.__exit__(NonFiniteLossError, NonFiniteLossError("bad"), None),
        lambda _ledger: None,  # killed
    )
    for seconds, end in enumerate(ends, 1):
        ledger = _open(path, clock)
        ledger.begin(0)
        _steps(ledger, clock, 10, 100 * seconds)
        _save(ledger, clock, 10, seconds)
        end(ledger)
    ledger = _open(path, clock)
    assert ledger.uptimes == [
        Uptime(101, lost=False),
        Uptime(202, lost=True),
        Uptime(303, lost=True),
        Uptime(404, lost=False),
        Uptime(505, lost=True),
    ]
    assert (ledger.costs.write_s, ledger.costs.cost_s) == (5, 3)


def test_only_rank_0_writes_a_ledger(tmp_path: Path, clock: ManualClock) -> None:
    ledger = GoodputLedger(tmp_path / "goodput.jsonl", active=False, clock=clock)
    ledger.begin(0)
    ledger.end("finished", saved=True)
    assert list(tmp_path.iterdir()) == []


def test_the_start_time_of_the_process_is_that_of_the_kernel() -> None:
    program = "from trainer.report.clock import SystemClock as C; c = C();"
    program += "print(c.process_start, c.boot(), c.boot_id)"
    before = SystemClock().boot()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    after = SystemClock().boot()
    start, now, boot_id = done.stdout.split()
    assert before - 0.02 <= float(start) <= float(now) <= after  # the kernel counts in hundredths
    assert boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert abs(SystemClock().wall() - time.time()) < 5
