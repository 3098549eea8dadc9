"""The dense part as CUDA graphs on a real GPU: the same bits as launched one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import SMALL
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.loop.session.opening import open_session
from trainer.models.model import DenseArch

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
    pytest.mark.filterwarnings("default"),
]


def _losses(dataset: Path, output: Path, settings: dict[str, Any]) -> tuple[list[float], bool]:
    """Return the losses of all steps, and whether the dense part was captured."""
    named = {"device": "cuda", "deterministic": True, "compile": "off", "num_epochs": 2, **settings}
    paths = {"dataset_path": str(dataset), "output_dir": str(output)}
    config = make_config({**SMALL, **named, **paths})
    losses = []
    with join_world("cuda", output) as world, open_session(config, world) as session:
        for number, step in enumerate(session.steps()):
            session.advance(step)
            losses.append(step.loss.clone())
            if number == 20:
                session.evaluate()
        parts = [part for part in session.run.learner.model.modules() if isinstance(part, DenseArch)]
    captured = any(part.graph is not None and part.graph.is_captured for part in parts)
    return [float(loss) for loss in losses], captured


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"interaction": "dcn", "dcn_low_rank_dim": 4},
        {"gradient_accumulation_steps": 2, "gradient_clip_norm": 0.1},
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "bf16", "compile": "on", "deterministic": False},
    ],
    ids=str,
)
def test_a_captured_dense_part_learns_with_the_same_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    dataset = tmp_path / "data"
    write_dataset(
        dataset, train_rows=1010, test_rows=200, num_dense=3, num_sparse=4
    )  # the last batch is short
    graphed, captured = _losses(dataset, tmp_path / "graphed", settings)
    launched, none = _losses(dataset, tmp_path / "launched", {**settings, "cuda_graphs": "off"})
    assert (captured, none) == (True, False)
    assert graphed == launched
