"""What torchrun does not tell ends a pod in time; a small program stands where torchrun would."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from cloudrec.home import make_private
from cloudrec.pod.codes import AGAIN, FINISHED, SPENT
from cloudrec.pod.judge import Ending
from cloudrec.pod.settings import PodSettings
from cloudrec.pod.tee import Tee
from cloudrec.pod.watch import Watch

PROLOGUE = """
import json, pathlib, sys, time
run = pathlib.Path({run!r})
def tell(event, attempt, rank=0, **more):
    line = dict(time=time.time(), event=event, launch=1, attempt=attempt, rank=rank, local_rank=rank, **more)
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(line) + chr(10))
def say(text):
    with (run / "logs/rank-0.log").open("a") as file:
        file.write(text + chr(10))
def attempt(number, code, text):
    tell("rank_started", number)
    say(text)
    tell("rank_ended", number, exit_code=code)
"""
FOREVER = "\nwhile True: time.sleep(0.05)\n"


class Bench:
    """A pod's folder, and a program in torchrun's place."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.settings = PodSettings(work=folder, grace_s=2.0, max_restarts=1, **settings)
        make_private(self.settings.folder.logs)
        self.finished = False
        self.watch: Watch

    def run(self, program: str) -> Ending:
        folder = self.settings.folder
        script = PROLOGUE.format(run=str(folder.path)) + program
        with Tee(folder.agent_log, prefix="") as tee:
            self.watch = Watch(
                self.settings,
                [sys.executable, "-c", script],
                {},
                tee=tee,
                tell=lambda event, **more: folder.ledger.append(event, launch=1, **more),
                is_finished=lambda: self.finished,
            )
            return self.watch.run()

    def events(self) -> list[str]:
        lines = self.settings.folder.ledger.path.read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def test_more_crashes_than_are_forgiven_end_torchrun(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ending = bench.run("for n in range(2): attempt(n, 1, 'error: it broke')" + FOREVER)
    assert ending.code == SPENT
    assert ending.cause == "rank 0 ended with exit code 1: it broke (2 crashes; 1 are forgiven)"


def test_what_ran_before_torchrun_is_left_alone(tmp_path: Path) -> None:
    mine = subprocess.Popen(["sleep", "60"])
    try:
        assert Bench(tmp_path).run("").code == FINISHED
        assert mine.poll() is None
    finally:
        mine.kill()
        mine.wait()


def test_a_machine_that_is_about_to_go_ends_its_pod_and_others_look_for_the_next_one(tmp_path: Path) -> None:
    notice = "stopping: gcp: preempted, in 25 s"
    going = Bench(tmp_path / "going").run(f"attempt(0, 75, {notice!r})" + FOREVER)
    assert (going.code, going.cause) == (AGAIN, f"this machine is about to go: {notice}")
    staying = Bench(tmp_path / "staying")
    assert staying.run("attempt(0, 75, 'stopped at step 3'); attempt(1, 0, '')").code == FINISHED


def test_a_rank_that_torchrun_ended_on_its_way_out_leaves_with_the_others(tmp_path: Path) -> None:
    notice = "stopping: gcp: preempted, in 25 s"
    going = Bench(tmp_path).run(
        f"tell('rank_started', 0); tell('rank_started', 0, 1); say({notice!r})\n"
        "tell('rank_ended', 0, 0, exit_code=75); tell('rank_ended', 0, 1, exit_code=-15)" + FOREVER
    )
    assert (going.code, going.cause) == (AGAIN, f"this machine is about to go: {notice}")


def test_a_rendezvous_is_looked_for_until_others_have_finished_the_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    threading.Timer(0.5, lambda: setattr(bench, "finished", True)).start()
    ending = bench.run("sys.exit(75)")
    assert (ending.code, ending.cause) == (FINISHED, "the other pods have finished the run")
    assert bench.events()[0] == "restarting"


def test_ranks_that_ignore_a_stop_are_killed_within_the_grace(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); tell('rank_started', 0)"
    previous = signal.signal(signal.SIGALRM, lambda *_: bench.watch.stop())
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    started = time.monotonic()
    ending = bench.run(ignoring + FOREVER)
    signal.signal(signal.SIGALRM, previous)
    assert time.monotonic() - started < 0.5 + bench.settings.grace_s
    assert (ending.code, ending.cause) == (AGAIN, "told to stop, and stopped before its ranks had answered")
