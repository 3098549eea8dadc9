"""Endurance: the elastic agent and its supervisor are killed repeatedly at random moments."""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.support_bench import SMALL, Bench
from tests.tallies import Tally

KILLS = int(os.environ.get("CHAOS_KILLS", "220")) // 10  # a start of torch's agent takes seconds
AGENT = "cloudrec.launchers.local.elastic"
FLAGS = (*SMALL, "--num_epochs", "60", "--checkpoint_interval", "20")


def wait_for_step(bench: Bench, step: int) -> dict[str, Any]:
    return bench.wait("hunted", lambda view: (view["step"] or 0) >= step or view["state"] != "RUNNING")


@pytest.mark.soak
def test_a_run_with_killed_agents_produces_the_model_of_an_undisturbed_run(
    tmp_path: Path, tally: Tally
) -> None:
    bench, dice = Bench(tmp_path), random.Random(7)  # noqa: S311 - no secret
    bench.run("data", "synth", "raw", "--rows", "12000", "--seed", "3")
    bench.run("data", "prepare", "raw", "prepared")
    bench.run("up", "local")
    flags = ("--dataset", "prepared", "--nproc-per-node", "2")
    bench.run("train", "--name", "calm", *flags, "--", *FLAGS, timeout_s=1200)
    bench.run("train", "--name", "hunted", *flags, "--detach", "--", *FLAGS)
    killed = {"agent": 0, "supervisor": 0}
    try:
        while sum(killed.values()) < KILLS:
            view = wait_for_step(bench, (bench.view("hunted")["step"] or 0) + dice.randint(1, 400))
            if view["state"] == "SUCCEEDED":
                break
            victim = dice.choice(["agent", "supervisor"])
            supervisor = psutil.Process(view["pid"])
            (agent,) = [each for each in supervisor.children() if AGENT in each.cmdline()]
            (agent if victim == "agent" else supervisor).send_signal(signal.SIGKILL)
            killed[victim] += 1
            bench.wait_until_alone()
            assert bench.view("hunted")["state"] in {"FAILED", "INTERRUPTED"}
            bench.run("train", "--resume", "hunted", "--detach")
        view = bench.wait("hunted", lambda view: view["state"] != "RUNNING")
    finally:
        for process in bench.processes():
            process.kill()
    assert view["state"] == "SUCCEEDED", view
    tally(f"killed: {json.dumps(killed)}")
    one, two = bench.summary("calm"), bench.summary("hunted")
    for key in ("samples_seen", "samples_digest", "model_digest", "auc"):
        assert one[key] == two[key], key
