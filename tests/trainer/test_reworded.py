"""The classification of a rank's exit does not depend on the trainer's messages."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from cloudrec.agent.exits.classify import PodAttempt, attempts_of, crash_in, final_ending
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.process.ports import free_port
from cloudrec_contract.exit_codes import BAD_DATA, PEER_LOST
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import command, kill, start, wait_until

ROOT = Path(__file__).parents[2]
SAYING = ("say", "warning", "print", "lost_peer")


class Reword(ast.NodeTransformer):
    """Replace every text of an error or a message; f-strings and their parts become one plain text."""

    def __init__(self) -> None:
        self.changed = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = ast.unparse(node.func).rpartition(".")[2]
        if name.endswith("Error") or name in SAYING:
            node.args = [self._reworded(each) for each in node.args]
        return self.generic_visit(node)

    def _reworded(self, value: ast.expr) -> ast.expr:
        is_text = isinstance(value, ast.JoinedStr) or (
            isinstance(value, ast.Constant) and isinstance(value.value, str)
        )
        self.changed += is_text
        return ast.Constant("quite other words") if is_text else value


def _trainer(folder: Path, *, reworded: bool) -> Path:
    """A copy of the trainer's sources, with all its messages in other words if so wanted."""
    shutil.copytree(ROOT / "trainer", folder / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    changed = 0
    for path in (folder / "trainer").rglob("*.py") if reworded else ():
        transform = Reword()
        path.write_text(ast.unparse(transform.visit(ast.parse(path.read_text()))))
        changed += transform.changed
    assert (changed > 100) == reworded
    return folder


class Bench:
    """Two ranks, each below the process that is its parent in a pod, and the ledger of that pod."""

    def __init__(self, folder: Path, words: list[str], *, reworded: bool) -> None:
        self.run = RunFolder(path=folder / "run")
        self.run.logs.mkdir(parents=True)
        sources = _trainer(folder / "sources", reworded=reworded)
        port = free_port()
        parent = [sys.executable, "-P", "-m", "cloudrec.agent", "rank", "--"]
        trainer = [sys.executable, "-P", *words[1:]]
        self.processes = [
            start(
                [*parent, *trainer],
                folder / f"{rank}.log",
                PYTHONPATH=f"{sources}{os.pathsep}{ROOT}",
                CLOUDREC_RUN_FOLDER=str(self.run.path),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
                WORLD_SIZE="2",
                LOCAL_WORLD_SIZE="2",
                RANK=str(rank),
                LOCAL_RANK=str(rank),
            )
            for rank in (0, 1)
        ]

    def attempt(self) -> PodAttempt:
        """What the ledger holds of the only attempt, once both ranks have ended."""
        try:
            for process in self.processes:
                process.wait(300)
        finally:
            for process in self.processes:
                kill(process)
        (attempt,) = attempts_of(self.run.ledger.read(), launch=1)
        return attempt

    def error_of(self, rank: int) -> str | None:
        return outputs.last_error(self.run.rank_log(rank))


@pytest.mark.parametrize("reworded", [False, True])
def test_a_killed_rank_is_a_crash_and_its_peer_is_not(tmp_path: Path, *, reworded: bool) -> None:
    write_dataset(tmp_path / "data", train_rows=500, test_rows=100, num_dense=3, num_sparse=3)
    bench = Bench(tmp_path, command(tmp_path / "data", tmp_path / "run", num_epochs=5000), reworded=reworded)
    metrics = bench.run.metrics_file
    wait_until(lambda: metrics.exists() and '"train"' in metrics.read_text(), bench.processes[0])
    begun = {event.details["rank"]: event.details["pid"] for event in bench.run.ledger.read()}
    os.kill(begun[1], signal.SIGKILL)
    attempt = bench.attempt()
    assert {each.rank: each.exit_code for each in attempt.exits} == {0: PEER_LOST, 1: -signal.SIGKILL}
    culprit = crash_in(attempt, bench.error_of)
    assert culprit is not None
    assert culprit.rank == 1
    (survivor,) = (each for each in attempt.exits if each.rank == 0)
    assert survivor.end is not None
    assert survivor.end.kind == "peer_lost"
    assert (survivor.end.cause == "quite other words") == reworded


@pytest.mark.parametrize("reworded", [False, True])
def test_refused_data_ends_the_run_at_once(tmp_path: Path, *, reworded: bool) -> None:
    bench = Bench(tmp_path, command(tmp_path / "nowhere", tmp_path / "run"), reworded=reworded)
    attempt = bench.attempt()
    assert {each.exit_code for each in attempt.exits} == {BAD_DATA}
    ending = final_ending([attempt], {})
    assert ending is not None
    assert ending.code == BAD_DATA
