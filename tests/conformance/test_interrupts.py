"""Ctrl-C at any call of `up` and `down`: what exists and its $/h are shown, and the next command works."""

from __future__ import annotations

import multiprocessing
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from cloudrec import providers
from cloudrec.cli.main import run
from cloudrec.engine.graph import cost_of
from cloudrec.errors import INTERRUPTED
from tests.conformance.support_clouds import CLOUDS, PATIENCE_S, Cloud, Site
from tests.tallies import Tally

POINTS = 50
NAME = "conformance"
STATE = re.compile(
    r"cluster 'conformance': (?P<made>\d+)(?: of \d+)? resources (?:exist|are left)"
    r"(?:, and (?P<may>\d+) whose creation was under way may)? \((?P<cost>[^)]*)\)"
    r"|nothing of cluster 'conformance' (?:exists|is left), by the journal \(\$0\.00/h\)"
)


def commanded(pipe: Any, arguments: Sequence[str], environment: dict[str, str], told: str) -> None:
    """The main function of a process that is the command line, with its output in a file."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    file = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    pipe.recv()
    code = run(list(arguments))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


class Terminal:
    """The command line with one home, in processes that are forked from one with everything imported."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        folder.mkdir()
        self.cloud, self.told = cloud, folder / "told.txt"
        self.site = Site(cloud, folder, NAME)
        self.words = [cloud.name, "--cluster", NAME, "--yes"]
        self.settings = [f"--set=cluster.settings.{k}={v}" for k, v in cloud.ways.settings.items()]

    def run(self, *arguments: str, at: int | None = None) -> tuple[int, str]:
        """Run a command, with Ctrl-C at a call; return its exit code and what it printed."""
        context = multiprocessing.get_context("forkserver")
        preload = [module for name in CLOUDS for module in providers.needs(name).modules]
        preload += [f"cloudrec.providers.{name}.provider" for name in CLOUDS]
        context.set_forkserver_preload([__name__, "tests.conformance.preloaded", *preload])
        ours, theirs = context.Pipe()
        environment = {**self.cloud.env, "CLOUDREC_HOME": str(self.site.home.root)}
        process = context.Process(
            target=commanded, args=(theirs, arguments, environment, str(self.told)), daemon=True
        )
        process.start()
        order = {"pid": process.pid, "call": at, "signal": "INT"}
        self.cloud.control(kill=order if at is not None else None)
        ours.send("go")
        process.join(PATIENCE_S)
        hangs = process.exitcode is None
        if hangs:
            process.kill()
        assert not hangs, f"{arguments} hangs after Ctrl-C at call {at}"
        ours.close()
        return process.exitcode or 0, self.told.read_text()

    def up(self, at: int | None = None) -> tuple[int, str]:
        return self.run("up", *self.words, "--nodes", "2", *self.settings, at=at)

    def down(self, at: int | None = None) -> tuple[int, str]:
        return self.run("down", *self.words, at=at)

    def check(self, told: str, other: str) -> str:
        """Check what an interrupted command printed; return the command that continues it."""
        assert "error: interrupted" in told, told
        state = STATE.search(told)
        assert state is not None, told
        made, may = (int(state[name] or 0) for name in ("made", "may"))
        found = self.site.application.provider(self.cloud.name).search(NAME)
        # One thing may be found as two kinds: a network is also the place of what others left in it.
        in_graph = {each.identity: each for each in found if not each.outside_graph}
        known = {each.key for each in self.site.application.journal.known(NAME)}
        missing = [each.key for each in in_graph.values() if each.key not in known]
        assert len(in_graph) <= made + may, (missing, list(in_graph), told)
        usd = re.match(r"\$([\d.]+)/h", state["cost"] or "$0.00/h")
        assert usd is not None, told
        # Never understated, but for what a cloud makes by itself, such as a new cluster's first nodes.
        cost = cost_of(each for each in in_graph.values() if each.key in known)
        assert cost.known_usd <= float(usd[1]) + 0.01, told
        assert re.search(other, told), told
        again = re.search(r"continue: `cloudrec ([^`]*)`", told)
        assert again is not None, told
        return again[1]


def interrupt(cloud: Cloud, folder: Path, command: str, points: int, tally: Tally) -> int:
    """Interrupt a command at points that are spread over its calls; return at how many it was.

    Each time the command that continues is run, and must end like one that was not interrupted.
    """
    calm = Terminal(cloud, folder / "calm")
    code, told = calm.up()
    assert code == 0, told
    made, calls = cloud.kinds(), len(cloud.calls())
    if command == "down":
        code, told = calm.down()
        assert code == 0, told
        calls = len(cloud.calls()) - calls
    last = max(calls - calls // 10, points)  # polls vary, and a command that ends is not interrupted
    hit = 0
    for number in range(points):
        at = 1 + number * (last - 1) // max(points - 1, 1)
        terminal = Terminal(cloud, folder / str(number))
        cloud.reset()
        if command == "down":
            code, told = terminal.up()
            assert code == 0, told
            code, told = terminal.down(at)
            other = rf"create it again: `cloudrec up {cloud.name} --cluster {NAME}`"
        else:
            code, told = terminal.up(at)
            other = rf"remove: `cloudrec down {cloud.name} --cluster {NAME}`"
        assert code in {0, INTERRUPTED}, (at, told)
        if code == INTERRUPTED:
            hit += 1
            code, told = terminal.run(*shlex.split(terminal.check(told, other)))
            assert code == 0, (at, told)
        if command == "down":
            assert cloud.state() == [], at
        else:
            assert cloud.kinds() == made, at
    tally(f"{cloud.name}: {command} was interrupted at {hit} of {points} calls of {calls}, and continued")
    return hit


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("command", ["up", "down"])
def test_ctrl_c_shows_what_exists_and_the_command_that_continues(
    cloud: Cloud, tmp_path: Path, command: str, tally: Tally
) -> None:
    points = 5
    assert interrupt(cloud, tmp_path, command, points, tally) >= points - 1


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", ["up", "down"])
def test_ctrl_c_at_fifty_points_shows_what_exists_and_the_command_that_continues(
    cloud: Cloud, tmp_path: Path, command: str, tally: Tally
) -> None:
    assert interrupt(cloud, tmp_path, command, POINTS, tally) >= POINTS - 2
