"""A run whose store fails again and again: the same model, no sample lost, and no file left over."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.faults import Fault
from tests.tallies import Tally
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import Outcome, run_here
from trainer.checkpoint.format.catalogue import list_commits
from trainer.checkpoint.format.commit import commit_name
from trainer.checkpoint.store.base import open_store
from trainer.loop.session import checkpoints as run_checkpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.support_clouds import CloudPlace

EXACT: dict[str, Any] = {"deterministic": True, "lr_decay": "none", "checkpoint_interval": 5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.soak)])
def test_a_run_with_many_faults_of_its_store_ends_with_the_same_model(
    enter_cloud: Callable[[str], CloudPlace],
    dataset: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    *,
    tally: Tally,
) -> None:
    monkeypatch.setattr(run_checkpoints, "_FIRST_WAIT_S", 0.05)
    cloud, dice = enter_cloud("s3"), random.Random(count)  # noqa: S311 - repeatable, no secret
    settings = {**EXACT, "num_epochs": count // 10}
    before = len(cloud.proxy.requests)
    whole_run = run_here(dataset, tmp_path / "whole", **settings, checkpoint_dir=cloud.new_uri())
    requests = len(cloud.proxy.requests) - before
    uri = cloud.new_uri()
    # A run that misses saves makes fewer requests; the check of old files makes more on an idle machine. So
    # more faults are prepared than have to happen.
    last = requests * 2 // 5
    faults = [_fault(cloud, dice, skip=dice.randrange(requests // 20, last)) for _ in range(count * 6 // 5)]
    cloud.proxy.faults.extend(faults)
    try:
        outcome = run_here(dataset, tmp_path / "run", **settings, checkpoint_dir=uri)
    finally:
        cloud.proxy.clear()
    happened = sum(not fault.times for fault in faults)
    missed = outcome.lines("save_failure")
    tally(f"{happened} faults in {requests} requests; {len(missed)} saves failed")
    assert outcome.code == 0
    assert _end(outcome) == _end(whole_run)
    _nothing_is_left_over(uri)
    again = run_here(dataset, tmp_path / "run", **settings, checkpoint_dir=uri)
    assert again.lines("start")[-1]["resumed_from"] == outcome.summary["step"]
    assert _end(again) == _end(whole_run)
    assert happened >= count
    assert len(missed) >= count // 20


def _fault(cloud: CloudPlace, dice: random.Random, *, skip: int) -> Fault:
    """A fault of one request: a lost answer, a cut connection, an overloaded server, or a refusal."""
    kind = dice.choice(["lose", "reset", "busy", "broken", "refused", "refused"])
    if kind in {"lose", "reset"}:
        return Fault("lose" if kind == "lose" else "reset", skip=skip)
    return cloud.refusal({"busy": 503, "broken": 500, "refused": 403}[kind], skip=skip)


def _end(outcome: Outcome) -> dict[str, Any]:
    names = ("model_digest", "samples_digest", "samples_seen", "auc", "step")
    return {name: outcome.summary[name] for name in names}


def _nothing_is_left_over(uri: str) -> None:
    store = open_store(uri)
    commits = [each.commit for each in list_commits(store)]
    needed = {
        name
        for commit in commits
        if commit is not None
        for name in (*commit.files, commit_name(commit.step, commit.owner))
    }
    assert None not in commits
    assert set(store.sizes("step-")) == needed
