"""A user's commands on a managed cluster on AWS, killed at each of their changes, and repeated."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cloudrec.keeper.managed.keeper import LINGER_S
from tests.contract.aws.support_trace import Trace
from tests.contract.aws.test_managed import begun, on, record, rounds
from tests.tallies import Tally

__all__ = ["begun"]
CHANGES = "(create|update|patch|apply|delete) (?!selfsubject).*"
TYPE = "p4d.24xlarge"
NODES = 2
FEW = 4
UP = (
    "up",
    "aws",
    "--cluster",
    "t",
    "--nodes",
    "2",
    "--capacity",
    "spot-first",
    "--instance-types",
    TYPE,
    "--yes",
)
IMAGE = "registry.example/trainer@sha256:" + "5c" * 32
SAMPLE = pytest.param(FEW, id="sample", marks=[pytest.mark.slow, pytest.mark.timeout(900)])
EVERY = pytest.param(10**6, id="every", marks=[pytest.mark.soak, pytest.mark.timeout(5400)])


def deaths(trace: Trace, words: tuple[str, ...], most: int) -> Iterator[tuple[int, str]]:
    """Run a command undisturbed; yield some or all of its changes, before and after."""
    since = len(trace.server.calls())
    done = trace.command(*words)
    assert done.returncode == 0, done.stderr
    calls = trace.server.calls(since)
    count = sum(bool(re.fullmatch(CHANGES, call["action"])) for call in calls)
    assert count > 2 * FEW
    found = [(call, when) for call in range(1, count + 1) for when in ("before", "after")]
    yield from found[:: max(1, len(found) // most)]


def training(folder: Path) -> tuple[str, ...]:
    """The command that launches a script; the run's name is still to be added."""
    work = folder / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    where = ("--workdir", str(work), "--cluster", "t", "--image", IMAGE, "--nodes", "2")
    return ("train", str(work / "train.py"), *where, *DETACHED, "--name")


# The pods of the stand-in are simulated here: those of a probe would not end.
DETACHED = ("--set", "train.settings.probe=false", "--detach", "--yes")


def check_machines(trace: Trace) -> None:
    """Not more machines than one run needs, all of them known to the keeper."""
    trace.agree()
    assert len(trace.machines()) == NODES
    assert sum(record(trace).asked.values()) == NODES


@pytest.mark.parametrize("most", [EVERY])
def test_a_train_that_is_killed_and_repeated_makes_one_run_and_its_nodes_once(
    begun: Callable[..., Trace], tmp_path: Path, most: int, tally: Tally
) -> None:
    trace = begun()
    train = training(tmp_path)
    before = "first"
    killed = 0
    for number, (call, when) in enumerate(deaths(trace, (*train, before), most)):
        rounds(trace, lambda run=before: len(on(trace, run)) == 1, "on nodes")  # type: ignore[misc]
        name = f"run-{number}"
        done = trace.command(*train, name, call=call, when=when, action=CHANGES)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        killed += done.returncode != 0
        trace.round()
        check_machines(trace)  # those of the run before
        again = trace.command(*train, name)
        if again.returncode == 2:  # its folder exists
            again = trace.command("train", "--resume", name, "--detach", "--yes")
        assert again.returncode == 0 or "is running" in again.stderr or "alive" in again.stderr, again.stderr
        assert (
            len(trace.kube.list("batch/v1/Job", namespace=trace.namespace, labels={"cloudrec/run": name}))
            == 1
        )
        rounds(trace, lambda run=name: record(trace).queue == (run,), "queued")  # type: ignore[misc]
        check_machines(trace)
        trace.kube.delete("Job", before, namespace=trace.namespace)
        before = name
    tally(f"train: killed {killed} times; one run and {NODES} machines after each repetition")
    assert killed >= FEW
    rounds(trace, lambda: len(on(trace, before)) == 1, "on nodes")
    trace.kube.delete("Job", before, namespace=trace.namespace)
    rounds(trace, lambda: not record(trace).runs, "without a run")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")


@pytest.mark.parametrize("most", [SAMPLE, EVERY])
def test_an_up_that_is_killed_and_repeated_leaves_the_run_its_nodes(
    begun: Callable[..., Trace], tmp_path: Path, most: int, tally: Tally
) -> None:
    trace = begun()
    assert trace.command(*training(tmp_path), "one").returncode == 0
    rounds(trace, lambda: len(on(trace, "one")) == 1, "on nodes")
    machines, killed = sorted(trace.machines()), 0
    for call, when in deaths(trace, UP, most):
        done = trace.command(*UP, call=call, when=when, action=CHANGES)
        assert done.returncode in {0, -signal.SIGKILL}, done.stderr
        killed += done.returncode != 0
        trace.round()
        check_machines(trace)
    again = trace.command(*UP)
    assert again.returncode == 0, again.stderr
    trace.round()
    assert len(on(trace, "one")) == 1
    assert sorted(trace.machines()) == machines
    tally(f"up: killed {killed} times; the run kept its {NODES} machines")
    assert killed >= FEW
