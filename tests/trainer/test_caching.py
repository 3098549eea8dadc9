"""Tables whose newest rows are in a GPU's cache: checkpoints and digests have the trained rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer.support_caching import CachingTables, ForgetfulTables, use_caching_tables
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_learner import make_batches, make_learner
from tests.trainer.support_ranks import Place
from tests.trainer.support_runs import SMALL, run_here
from tests.trainer.support_worlds import Worlds
from trainer.base.arguments import make_config
from trainer.base.distributed import join_world
from trainer.checkpoint import Checkpointer
from trainer.commands import export
from trainer.loop.learner import Learner
from trainer.loop.session.opening import open_session
from trainer.sharding.digest import model_digest
from trainer.tables.kernels import table_kernels

EXACT = {"deterministic": True, "num_epochs": 2, "lr_decay": "none", "table_kernel": "fbgemm"}
needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="fbgemm's cache is in GPU memory, and torch sees no GPU"
)
ON_GPU = {"device": "cuda", "compute_kernels": ("fused_uvm_caching",), "uvm_cache_load_factor": 0.5}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=200, num_dense=3, num_sparse=4)
    return path


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_a_run_with_a_cache_saves_and_digests_rows_that_only_the_cache_has(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    settings = {**EXACT, "checkpoint_mode": mode}
    plain = run_here(dataset, tmp_path / "plain", **settings).summary
    use_caching_tables(monkeypatch)
    whole = run_here(dataset, tmp_path / "whole", **settings).summary
    for steps in (13, 40, None):
        parts = run_here(dataset, tmp_path / "parts", **settings, num_iterations=steps).summary
    for name in ("samples_digest", "model_digest", "auc"):
        assert whole[name] == plain[name] == parts[name], name


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_without_a_flush_the_digest_and_a_resumed_run_have_lost_the_cached_rows(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    settings = {**EXACT, "checkpoint_mode": mode}
    plain = run_here(dataset, tmp_path / "plain", **settings).summary
    use_caching_tables(monkeypatch, ForgetfulTables)
    whole = run_here(dataset, tmp_path / "whole", **settings).summary
    for steps in (40, None):
        parts = run_here(dataset, tmp_path / "parts", **settings, num_iterations=steps).summary
    assert whole["auc"] == plain["auc"]  # the training itself has every row
    assert whole["model_digest"] != plain["model_digest"]
    assert parts["auc"] != plain["auc"]


def _stale_rows(place: Place, folder: str, *, forgetful: bool) -> tuple[int, int, int]:
    """How many trained rows a restored checkpoint lacks, how many were trained, and a cut's flushes."""
    with pytest.MonkeyPatch.context() as patch:
        use_caching_tables(patch, ForgetfulTables if forgetful else CachingTables)
        learner = make_learner(place, table_kernel="fbgemm", deterministic=True)
    kernel, _ = next(table_kernels(learner.model))
    drawn = [weight.clone() for weight in kernel.newest()]
    list(learner.pipeline.steps(make_batches(place, [24] * 6), 0))
    trained = [weight.clone() for weight in kernel.newest()]
    with Checkpointer(folder, keep=1, rank=0, world_size=1) as writer:
        before = kernel.flushes
        writer.save(6, learner.state, {}, {}, initial=learner.initial)
        flushes = kernel.flushes - before
        with learner.filling() as state:
            writer.load(6, state, initial=learner.initial)
    restored = kernel.split_embedding_weights()
    stale = changed = 0
    for first, last, loaded in zip(drawn, trained, restored, strict=True):
        changed += int((first != last).any(dim=1).sum())
        stale += int((loaded != last).any(dim=1).sum())
    return stale, changed, flushes


def test_a_cut_flushes_once_and_without_that_every_trained_row_is_restored_as_it_was_drawn(
    worlds: Worlds, tmp_path: Path
) -> None:
    stale, changed, flushes = worlds.run(1, partial(_stale_rows, forgetful=False), str(tmp_path / "true"))[0]
    assert (stale, flushes) == (0, 1)
    assert changed > 0
    stale, changed, _ = worlds.run(1, partial(_stale_rows, forgetful=True), str(tmp_path / "stale"))[0]
    assert stale == changed > 0


def test_an_export_of_a_run_with_a_cache_has_the_trained_rows(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(dataset, tmp_path / "plain", **EXACT)
    use_caching_tables(monkeypatch)
    run_here(dataset, tmp_path / "cached", **EXACT)
    exported = []
    for name in ("plain", "cached"):
        words = ["--checkpoint", str(tmp_path / name / "checkpoints"), "--out", str(tmp_path / f"{name}-out")]
        assert export.main(words) == 0
        exported.append(np.load(tmp_path / f"{name}-out" / "tables" / "C1.npy"))
    assert np.array_equal(*exported)


def test_a_warm_start_fills_the_tables_that_a_cache_reads(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_here(dataset, tmp_path / "day-1", **EXACT)
    warm = {**EXACT, "init_from": str(tmp_path / "day-1" / "checkpoints"), "init_match": "number"}
    plain = run_here(dataset, tmp_path / "plain", **warm).summary
    use_caching_tables(monkeypatch)
    cached = run_here(dataset, tmp_path / "cached", **warm).summary
    assert cached["model_digest"] == plain["model_digest"]
    assert cached["auc"] == plain["auc"]


def _trained_on_after_a_load(place: Place, folder: str) -> tuple[str, str]:
    """The model after six steps, and after going back to the third and making the last three again."""
    with pytest.MonkeyPatch.context() as patch:
        use_caching_tables(patch)
        learner = make_learner(place, table_kernel="fbgemm", deterministic=True)
    batches = list(make_batches(place, [24] * 6))
    with Checkpointer(folder, keep=1, rank=0, world_size=1) as writer:
        list(learner.pipeline.steps(batches[:3], 0))
        writer.save(3, learner.state, {}, {}, initial=learner.initial)
        list(learner.pipeline.steps(batches[3:], 3))
        once = model_digest(learner.state, place.group)
        with learner.filling() as state:
            writer.load(3, state, initial=learner.initial)
    list(learner.pipeline.steps(batches[3:], 3))
    return once, model_digest(learner.state, place.group)


def test_training_after_a_load_reads_loaded_rows_and_no_cached_ones(worlds: Worlds, tmp_path: Path) -> None:
    once, again = worlds.run(1, _trained_on_after_a_load, str(tmp_path))[0]
    assert again == once


def _differing_rows(learner: Learner) -> int:
    """How many rows a look-up finds otherwise than the state shows them."""
    state, differing = learner.state, 0
    for kernel, tables in table_kernels(learner.model):
        for feature, table in enumerate(tables):
            weight = state[f"tables/{table.name}/weight"].shards[0].tensor
            offsets = torch.tensor([0] * (feature + 1) + [1] * (len(tables) - feature), device="cuda")
            for row in range(len(weight)):
                ids = torch.tensor([row], device="cuda")
                found = kernel(indices=ids, offsets=offsets).detach().view(len(tables), -1)[feature]
                differing += not torch.equal(found, weight[row].to(found.device))
    return differing


@needs_gpu
def test_on_a_gpu_the_state_has_every_row_as_a_lookup_returns_it(dataset: Path, tmp_path: Path) -> None:
    paths = {"dataset_path": str(dataset), "output_dir": str(tmp_path)}
    config = make_config({**SMALL, **EXACT, **ON_GPU, **paths})
    with join_world("cuda", tmp_path) as world, open_session(config, world) as session:
        for step in session.steps():
            session.advance(step)
        assert _differing_rows(session.run.learner) == 0


@needs_gpu
def test_on_a_gpu_an_interrupted_run_with_a_cache_equals_an_uninterrupted_one(
    dataset: Path, tmp_path: Path
) -> None:
    settings = {**EXACT, **ON_GPU}
    whole = run_here(dataset, tmp_path / "whole", **settings).summary
    for steps in (13, None):
        parts = run_here(dataset, tmp_path / "parts", **settings, num_iterations=steps).summary
    assert parts["samples_digest"] == whole["samples_digest"]
    assert parts["logloss"] == pytest.approx(whole["logloss"], rel=1e-5)
