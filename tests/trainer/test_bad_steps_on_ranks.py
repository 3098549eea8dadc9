from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.trainer.support_learner import make_world
from tests.trainer.support_runs import SMALL
from trainer.base.arguments import make_config
from trainer.base.errors import NonFiniteLossError
from trainer.loop.loop import train
from trainer.loop.session.opening import open_session
from trainer.report.window import LossWatch

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place, RankPool


def _diverge(place: Place, output: str, interval: str, when: str) -> str:
    """Train on a loader with a rate at which the second step's loss is NaN on both ranks.

    With `when` "late", losses are read when those on a GPU are.
    """
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1e30, "checkpoint_interval": interval}
    loader = "tests.trainer.test_data_formats:good"
    config = make_config({**SMALL, **settings, "dataset": loader, "output_dir": output})
    with open_session(config, make_world(place)) as session:
        session.judge._losses = LossWatch(late=when == "late")
        try:
            train(session)
        except NonFiniteLossError as error:
            return str(error)
    return ""


@pytest.mark.parametrize("when", ["at once", "late"])
@pytest.mark.parametrize("interval", ["1", "0.001s"], ids=["saves by steps", "saves by time"])
def test_every_rank_reports_the_samples_of_a_non_finite_loss(
    ranks: RankPool, tmp_path: Path, interval: str, when: str
) -> None:
    first, second = ranks.run(2, _diverge, str(tmp_path), interval, when)
    assert first == second
    assert "at step 2 " in first
    assert "in the batch of samples 50, 51, 52, 53, 54, 55, 56, 57 and 42 more" in first
    assert "the last good checkpoint is that of step 1 in" in first
    assert sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*")) == ["step-00000001"]


def test_a_loss_that_is_read_late_ends_the_run_before_it_saves_the_model(
    ranks: RankPool, tmp_path: Path
) -> None:
    """No checkpoint is due, so the exchange after the next one has the loss."""
    first, second = ranks.run(2, _diverge, str(tmp_path), "0", "late")
    assert first == second
    assert "at step 2 " in first
    assert "in the batch of samples 50, 51, 52, 53, 54, 55, 56, 57 and 42 more" in first
    assert not list((tmp_path / "checkpoints").glob("step-*"))


def _stop_after_a_bad_step(place: Place, output: str) -> str:
    """Request a stop with step 2, whose loss is NaN and was not read yet; return how the run ends."""
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1e30, "checkpoint_interval": "0"}
    loader = "tests.trainer.test_data_formats:good"
    config = make_config({**SMALL, **settings, "dataset": loader, "output_dir": output})
    with open_session(config, make_world(place)) as session:
        session.judge._losses = LossWatch(late=True)
        for number, step in enumerate(session.steps(), 1):
            session.advance(step)
            if number == 2:
                session.end.stop.request()
            try:
                if session.agree().stop:
                    return f"stops and saves step {number}"
            except NonFiniteLossError as error:
                return str(error)
    return ""


def test_a_stop_saves_no_model_whose_loss_was_not_read_yet(ranks: RankPool, tmp_path: Path) -> None:
    first, second = ranks.run(2, _stop_after_a_bad_step, str(tmp_path))
    assert first == second
    assert "at step 2 " in first
    assert not list((tmp_path / "checkpoints").glob("step-*"))
