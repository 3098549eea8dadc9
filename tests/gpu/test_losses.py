"""Losses of a real GPU are read without waiting for it: `python -m pytest tests/gpu/test_losses.py`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import run_here
from trainer.base.errors import NonFiniteLossError
from trainer.loop.boundary import MOST_STEPS
from trainer.report.late import LateCopy
from trainer.report.window import LossWatch, WatchedStep, Window

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

ON_GPU: dict[str, Any] = {"device": "cuda", "num_epochs": 2, "lr_decay": "none"}


@pytest.fixture
def no_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def _busy() -> None:
    """Queue a tenth of a second of work."""
    matrix = torch.ones(8192, 8192, device="cuda")
    for _ in range(8):
        matrix = matrix @ matrix * 1e-4


@pytest.mark.usefixtures("no_waits")
def test_a_bad_step_is_found_without_waiting_for_the_gpu() -> None:
    losses = torch.ones(2 * MOST_STEPS, device="cuda")
    losses[MOST_STEPS - 1 :].fill_(math.nan)
    watch = LossWatch(late=True)
    found = []
    for number, loss in enumerate(losses.unbind(), 1):
        watch.add(loss, WatchedStep(torch.tensor([number]), 0.1))
        if number % MOST_STEPS == 0:
            found.append(watch.first_bad_step(number, now=False))
    assert found == [0, MOST_STEPS]
    assert watch.what_was(MOST_STEPS)[0].sample_ids.tolist() == [MOST_STEPS]


@pytest.mark.usefixtures("no_waits")
def test_the_losses_of_a_line_are_those_before_it() -> None:
    window = Window(0.0)
    for loss in torch.arange(1.0, 4.0, device="cuda").unbind():
        _busy()
        window.add(loss, 10)
    total = window.loss()
    assert float(total.wait()) == 60.0


def test_a_copy_has_the_values_of_its_moment() -> None:
    values = torch.zeros(1000, device="cuda")
    copies = []
    for number in range(20):
        _busy()
        values.fill_(number)
        copies.append(LateCopy(values))
    for number, copy in enumerate(copies):
        assert bool((copy.wait() == number).all())


@pytest.mark.parametrize("interval", ["1", "0.001s"], ids=["saves by steps", "saves by time"])
def test_no_checkpoint_is_saved_at_or_after_a_bad_loss(tmp_path: Path, interval: str) -> None:
    write_dataset(tmp_path / "data", train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    settings = {"dense_optimizer": "sgd", "dense_learning_rate": 1e30, "checkpoint_interval": interval}
    with pytest.raises(NonFiniteLossError, match=r"at step 2 .*last good checkpoint is that of step 1 in"):
        run_here(tmp_path / "data", tmp_path / "run", **ON_GPU, **settings)
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("step-*"))
    assert saved == ["step-00000001"]


@pytest.mark.parametrize("log_interval", [1, 7, 1000])
def test_every_line_of_metrics_is_written_once_with_its_loss(tmp_path: Path, log_interval: int) -> None:
    write_dataset(tmp_path / "data", train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    losses = {}
    for device in ("cpu", "cuda"):
        run = run_here(
            tmp_path / "data", tmp_path / device, **{**ON_GPU, "device": device}, log_interval=log_interval
        )
        losses[device] = {line["step"]: line["loss"] for line in run.lines("train")}
    assert list(losses["cuda"]) == [
        step for step in range(1, run.summary["step"] + 1) if step % log_interval == 0
    ]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)
