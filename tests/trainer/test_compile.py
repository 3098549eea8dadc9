from __future__ import annotations

import logging
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_learner import make_batches, make_learner, train_losses
from tests.trainer.support_runs import command, run_here
from trainer.base.arguments import make_config, parse_arguments
from trainer.base.errors import ConfigError
from trainer.commands.scoring import open_model, score_split
from trainer.models.compiled import CompiledDense

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

SMOOTH = {"dense_optimizer": "sgd", "dense_learning_rate": 0.05, "learning_rate": 0.05}
DCN = {"interaction": "dcn", "dcn_num_layers": 2, "dcn_low_rank_dim": 4}
SIZES = [64] * 6 + [40, 1]  # the last batches of epochs have other sizes


def _losses_and_graphs(place: Place, settings: dict[str, Any]) -> tuple[list[float], list[float], int]:
    """Losses of training, logits of evaluations of other sizes, and how many graphs were compiled."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    learner = make_learner(place, **SMOOTH, **settings)
    losses = train_losses(place, learner, SIZES)
    scores = [
        float(logit)
        for size in (96, 33, 128)
        for logits, _ in learner.score(make_batches(place, [size]))
        for logit in logits
    ]
    losses += train_losses(place, learner, SIZES)
    return losses, scores, torch._dynamo.utils.counters["stats"]["unique_graphs"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        pytest.param(DCN, marks=pytest.mark.soak),
        pytest.param({"activation_checkpointing": True}, marks=pytest.mark.soak),
    ],
    ids=str,
)
def test_a_compiled_model_learns_and_scores_like_the_eager_one(
    worlds: Worlds, settings: dict[str, Any]
) -> None:
    losses, scores, none = worlds.run(1, _losses_and_graphs, settings)[0]
    compiled_losses, compiled_scores, graphs = worlds.run(
        1, _losses_and_graphs, {**settings, "compile": True}
    )[0]
    assert compiled_losses == pytest.approx(losses, abs=1e-5)
    assert compiled_scores == pytest.approx(scores, abs=1e-4)
    assert (none, 0 < graphs <= 4) == (0, True)


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [({}, 1e-5), ({"pipeline": "sparse_dist"}, 1e-5), ({"precision": "fp16"}, 0.01)],
    ids=str,
)
def test_compiled_ranks_learn_equally(worlds: Worlds, settings: dict[str, Any], tolerance: float) -> None:
    plain = worlds.run(1, _losses, {**SMOOTH, **settings})[0]
    compiled = worlds.run(2, _losses, {**SMOOTH, **settings, "compile": True})[0]
    assert compiled == pytest.approx(plain, abs=tolerance)


def _losses(place: Place, settings: dict[str, Any]) -> list[float]:
    torch._dynamo.reset()
    return train_losses(place, make_learner(place, **settings), SIZES)


# Two of torch's tracer about itself: it hides the first, but only where warnings are not errors.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.soak
def test_an_interrupted_compiled_run_equals_an_uninterrupted_one_and_scores_uncompiled(
    tmp_path: Path,
) -> None:
    write_dataset(tmp_path / "data", train_rows=110, test_rows=60, num_sparse=4, num_dense=3)
    settings = {"compile": True, "deterministic": True, "lr_decay": "none"}
    torch._dynamo.reset()
    whole = run_here(tmp_path / "data", tmp_path / "whole", **settings)
    for steps in (3, None):
        torch._dynamo.reset()
        pieces = run_here(tmp_path / "data", tmp_path / "pieces", **settings, num_iterations=steps)
    assert pieces.summary["model_digest"] == whole.summary["model_digest"]
    assert whole.summary["paths"]["dense"] == "compiled"
    scored = score_split(
        open_model(str(tmp_path / "whole/checkpoints"), None, "none"),
        dataset_path=str(tmp_path / "data"),
        split="test",
        batch_size=None,
        device_choice="cpu",
        out=None,
    )
    assert scored["auc"] == pytest.approx(whole.summary["auc"], abs=1e-6)


class _Records(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def _gives_up(place: Place, folder: str) -> tuple[list[float], list[float], list[str]]:
    """Losses with and without a compilation that cannot work, and what is said about it."""
    torch._dynamo.reset()
    records, log = _Records(), logging.getLogger("trainer.models.compiled")
    log.addHandler(records)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CXX", "no-such-compiler")
            patch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
            patch.setenv("TORCHINDUCTOR_CACHE_DIR", folder)
            learner = make_learner(place, **SMOOTH)
            dense = learner._task.model.dense
            dense._compiled = CompiledDense(
                dense.bottom, dense.crosses, dense.top, dense.dtype, required=False
            )
            losses = train_losses(place, learner, SIZES)
    finally:
        log.removeHandler(records)
    return losses, train_losses(place, make_learner(place, **SMOOTH), SIZES), records.texts


def test_a_compilation_that_fails_is_given_up_once_where_it_is_not_required(
    worlds: Worlds, tmp_path: Path
) -> None:
    tried, eager, said = worlds.run(1, _gives_up, str(tmp_path))[0]
    assert tried == eager
    assert len(said) == 1
    assert "no-such-compiler" in said[0]
    assert "set compile to off" in said[0]


@pytest.mark.parametrize(
    ("given", "choice"),
    [(True, "on"), (False, "off"), ("true", "on"), ("No", "off"), ("1", "on"), ("auto", "auto")],
)
def test_compile_is_read_as_the_truth_value_that_it_was(given: object, choice: str) -> None:
    assert make_config({"compile": given}).compile == choice


def test_a_word_that_compile_does_not_know_is_refused() -> None:
    with pytest.raises(
        ConfigError, match="compile: input should be 'auto', 'on' or 'off', but it is 'maybe'"
    ):
        make_config({"compile": "maybe"})


@pytest.mark.parametrize(
    ("words", "choice"),
    [(["--compile"], "on"), (["--no-compile"], "off"), (["--compile", "false"], "off"), ([], "auto")],
)
def test_the_flag_alone_means_on(words: list[str], choice: str) -> None:
    assert parse_arguments(words).config.compile == choice


def test_a_missing_compiler_is_reported(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=110, test_rows=60, num_sparse=4, num_dense=3)
    environment = os.environ | {"CXX": "no-such-compiler", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    words = command(tmp_path / "data", tmp_path / "out", compile=True)
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert "compile is on, but torch.compile fails on this machine" in done.stderr
    assert "no-such-compiler" in done.stderr
    assert "Traceback" not in done.stderr
