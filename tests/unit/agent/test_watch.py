"""The watch over torchrun ends a pod in time; a small program replaces torchrun."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from cloudrec.agent.exits.classify import Ending
from cloudrec.agent.settings import PodSettings
from cloudrec.agent.supervisor.tee import Tee
from cloudrec.agent.supervisor.watch import TorchrunWatch
from cloudrec.home import make_private
from cloudrec_contract.end_event import EndEvent
from cloudrec_contract.exit_codes import FINISHED, GANG_INCOMPLETE, RESTARTS_SPENT, STOPPED

PROLOGUE = """
import json, pathlib, sys, time
run = pathlib.Path({run!r})
def record(event, attempt, rank=0, **more):
    line = dict(time=time.time(), event=event, launch=1, attempt=attempt, rank=rank, local_rank=rank, **more)
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(line) + chr(10))
def say(text):
    with (run / "logs/rank-0.log").open("a") as file:
        file.write(text + chr(10))
def attempt(number, code, text, **more):
    record("rank_started", number)
    say(text)
    record("rank_ended", number, exit_code=code, **more)
"""
STAYING = EndEvent(exit_code=STOPPED, kind="stopped", notice="SIGTERM").document()
LEAVING = {**STAYING, "notice": "gcp", "machine_leaves": True}
FOREVER = "\nwhile True: time.sleep(0.05)\n"


class Bench:
    """A pod's folder, and a program that replaces torchrun."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = PodSettings(work=folder, grace_s=2.0, max_restarts=1, **settings)
        make_private(self.settings.folder.logs)
        self.finished = self.begun = False
        self.watch: TorchrunWatch

    def run(self, program: str) -> Ending:
        folder = self.settings.folder
        script = PROLOGUE.format(run=str(folder.path)) + program
        with Tee(folder.agent_log, prefix="") as tee:
            self.watch = TorchrunWatch(
                self.settings,
                lambda _endpoint: [sys.executable, "-c", script],
                {},
                tee=tee,
                record=lambda event, **more: folder.ledger.append(event, launch=1, **more),
                is_finished=lambda: self.finished,
                has_begun=lambda: self.begun,
            )
            return self.watch.run()

    def events(self) -> list[str]:
        lines = self.settings.folder.ledger.path.read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def test_crashes_beyond_the_limit_end_torchrun(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ending = bench.run("for n in range(2): attempt(n, 1, 'error: it broke')" + FOREVER)
    assert ending.code == RESTARTS_SPENT
    assert ending.cause == "rank 0 ended with exit code 1: it broke (2 crashes; the limit is 1)"


def test_processes_older_than_torchrun_are_left_alone(tmp_path: Path) -> None:
    mine = subprocess.Popen(["sleep", "60"])
    try:
        assert Bench(tmp_path).run("").code == FINISHED
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


def test_a_preemption_notice_ends_the_pod_and_its_peers_wait_for_the_next(tmp_path: Path) -> None:
    going = Bench(tmp_path / "going").run(f"attempt(0, 75, '', end={LEAVING})" + FOREVER)
    assert (going.code, going.cause) == (STOPPED, "this machine is being preempted: gcp")
    staying = Bench(tmp_path / "staying")
    program = f"attempt(0, 75, 'stopping: gcp: preempted', end={STAYING}); attempt(1, 0, '')"
    assert staying.run(program).code == FINISHED


def test_a_rank_ended_by_torchrun_during_shutdown_is_not_a_crash(tmp_path: Path) -> None:
    going = Bench(tmp_path).run(
        "record('rank_started', 0); record('rank_started', 0, 1)\n"
        f"record('rank_ended', 0, 0, exit_code=75, end={LEAVING})\n"
        "record('rank_ended', 0, 1, exit_code=-15)" + FOREVER
    )
    assert (going.code, going.cause) == (STOPPED, "this machine is being preempted: gcp")


def test_an_agent_retries_the_rendezvous_until_the_run_is_finished(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    threading.Timer(0.5, lambda: setattr(bench, "finished", True)).start()
    ending = bench.run("sys.exit(75)")
    assert (ending.code, ending.cause) == (FINISHED, "the other pods have finished the run")
    assert bench.events()[0] == "restarting"


def test_ranks_that_ignore_a_stop_are_killed_after_the_grace_period(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); record('rank_started', 0)"
    previous = signal.signal(signal.SIGALRM, lambda *_: bench.watch.stop())
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    ending = bench.run(ignoring + FOREVER)
    signal.signal(signal.SIGALRM, previous)
    assert (ending.code, ending.cause) == (
        STOPPED,
        "stopped on request, and stopped before its ranks had answered",
    )


def test_nodes_of_a_run_that_has_not_started_are_not_held_beyond_the_limit(tmp_path: Path) -> None:
    ending = Bench(tmp_path, start_timeout_s=0.5).run(FOREVER)
    assert ending.code == GANG_INCOMPLETE
    assert ending.cause.startswith(
        "not all nodes of the run joined within 0.5 s (train.settings.start_timeout_s)"
    )


def test_the_limit_of_the_start_does_not_end_ranks_that_train(tmp_path: Path) -> None:
    bench = Bench(tmp_path, start_timeout_s=0.5)
    assert (
        bench.run("record('rank_started', 0); time.sleep(1.5); record('rank_ended', 0, exit_code=0)").code
        == 0
    )


def test_a_pod_that_replaces_one_of_a_run_that_trains_has_no_limit_of_the_start(tmp_path: Path) -> None:
    bench = Bench(tmp_path, start_timeout_s=0.3)
    bench.begun = True
    assert bench.run("time.sleep(1.5); attempt(0, 0, 'done')").code == FINISHED
