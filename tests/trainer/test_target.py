from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import run_here
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LEARNABLE: dict[str, Any] = {"eval_interval": 10, "num_epochs": 3, "learning_rate": 0.1}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=4000, test_rows=1000, num_dense=3, num_sparse=4)
    return path


def test_a_run_ends_at_the_first_evaluation_that_reaches_the_target(dataset: Path, tmp_path: Path) -> None:
    outcome = run_here(dataset, tmp_path, **LEARNABLE, target_auc=0.65)
    assert outcome.code == 0
    summary, evaluations = outcome.summary, outcome.lines("eval")
    assert [line["auc"] >= 0.65 for line in evaluations] == [False] * (len(evaluations) - 1) + [True]
    assert (summary["status"], summary["target_reached"], summary["target_auc"]) == ("finished", True, 0.65)
    assert summary["step"] == summary["steps_to_target"] == evaluations[-1]["step"] < 480
    assert summary["samples_to_target"] == summary["samples_seen"] == 25 * summary["step"]
    assert 0 < summary["time_to_target_s"] < summary["wall_s"]
    assert summary["auc"] == evaluations[-1]["auc"]


def test_a_run_that_reached_its_target_ends_when_started_again(dataset: Path, tmp_path: Path) -> None:
    first = run_here(dataset, tmp_path, **LEARNABLE, target_auc=0.65).summary
    again = run_here(dataset, tmp_path, **LEARNABLE, target_auc=0.65).summary
    for name in ("step", "time_to_target_s", "steps_to_target", "model_digest", "auc"):
        assert again[name] == first[name]


def test_the_times_of_several_attempts_add_up(dataset: Path, tmp_path: Path) -> None:
    parts = run_here(dataset, tmp_path, **LEARNABLE, target_auc=0.99, num_iterations=200).summary
    assert (parts["target_reached"], parts["time_to_target_s"]) == (False, None)
    higher = run_here(dataset, tmp_path, **LEARNABLE, target_auc=0.6).summary
    assert higher["target_reached"]
    assert higher["steps_to_target"] >= 200
    assert higher["time_to_target_s"] > parts["samples_seen"] / parts["samples_per_s"], (
        "the first one's steps"
    )


def test_a_run_without_a_target_reports_none(dataset: Path, tmp_path: Path) -> None:
    summary = run_here(dataset, tmp_path, num_iterations=3).summary
    assert (summary["target_auc"], summary["target_reached"]) == (None, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"target_auc": 0.8}, "target_auc is 0.8 but eval_interval is 0"),
        ({"target_auc": 0.5, "eval_interval": 1}, "target_auc: input should be greater than 0.5"),
        ({"target_auc": 1, "eval_interval": 1}, "target_auc: input should be less than 1"),
    ],
)
def test_invalid_targets_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(settings)
