"""Pipelines that start again after an evaluation, and refusals; tests/gpu/test_pipelines.py runs them all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.trainer.support_caching import CachingTables, use_caching_tables
from tests.trainer.support_learner import make_batches, make_learner
from tests.trainer.support_ranks import Place
from tests.trainer.support_worlds import Worlds
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.loop.pipeline import WAYS, OverlappedPipeline
from trainer.tables.kernels import forget_prefetched, table_kernels

SIZES = [64] * 7 + [21]


def _losses(place: Place, way: str, evaluations: tuple[int, ...]) -> tuple[list[float], list[int]]:
    """Losses with evaluations after some steps, and the number of samples of each step."""
    learner = make_learner(place, pipeline="sparse_dist")
    assert isinstance(learner.pipeline, OverlappedPipeline)
    learner.pipeline.way = replace(WAYS["sparse_dist"], restarts=way == "restarts")
    losses, counts = [], []
    for number, step in enumerate(learner.pipeline.steps(make_batches(place, SIZES), 0)):
        losses.append(float(step.loss))
        counts.append(len(step.batch))
        if number in evaluations:
            for _ in learner.score(make_batches(place, [33])):
                pass
    return losses, counts


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("evaluations", [(0,), (2, 3), (6, 7)])
def test_a_pipeline_that_starts_again_loses_and_repeats_no_batch(
    worlds: Worlds, world_size: int, evaluations: tuple[int, ...]
) -> None:
    plain = worlds.run(world_size, _losses, "continues", ())[0]
    assert worlds.run(world_size, _losses, "restarts", evaluations)[0] == plain
    assert worlds.run(world_size, _losses, "continues", evaluations)[0] == plain


def _counters(place: Place) -> tuple[set[int], set[int]]:
    learner = make_learner(place, table_kernel="fbgemm", sharding_types=("table_wise",))
    kernels = [kernel for kernel, _ in table_kernels(learner.model)]
    for number, _ in enumerate(learner.pipeline.steps(make_batches(place, [64] * 5), 0)):
        if number == 2:
            for _ in learner.score(make_batches(place, [33] * 4)):
                pass
            evaluated = {int(kernel.iter_cpu) for kernel in kernels}
    return evaluated, {int(kernel.iter_cpu) for kernel in kernels}


def test_evaluations_do_not_count_as_steps_of_the_optimizer(worlds: Worlds) -> None:
    evaluated, trained = worlds.run(1, _counters)[0]
    assert evaluated == {7}  # fbgemm counts every look-up
    assert trained == {5}


def _emptied(place: Place) -> list[tuple[int, int, int, bool]]:
    with pytest.MonkeyPatch.context() as patch:
        use_caching_tables(patch)
        learner = make_learner(place, table_kernel="fbgemm", sharding_types=("table_wise",))
        for _ in learner.pipeline.steps(make_batches(place, [64] * 2), 0):
            pass
        kernels = [kernel for kernel, _ in table_kernels(learner.model)]
        found = []
        for prefetches in (False, True):
            for kernel in kernels:
                assert isinstance(kernel, CachingTables)
                kernel.prefetch_pipeline = prefetches
                kernel.timesteps_prefetched = [3, 4]
                kernel.lxu_cache_locations_list = [torch.zeros(1)]
                kernel.lxu_cache_locking_counter = torch.ones(3)
            newest = [table.clone() for kernel in kernels for table in kernel.newest()]
            forget_prefetched(learner.model)
            held = [table for kernel in kernels for table in kernel.split_embedding_weights()]
            kernel = kernels[0]
            found.append(
                (
                    len(kernel.timesteps_prefetched) + len(kernel.lxu_cache_locations_list),
                    int(kernel.lxu_cache_locking_counter.sum()),
                    sum(int(cached.sum()) for cached in kernel._is_cached),
                    all(torch.equal(*pair) for pair in zip(newest, held, strict=True)),
                )
            )
        return found


def test_what_was_prefetched_is_forgotten_and_no_update_with_it(worlds: Worlds) -> None:
    without, with_prefetch = worlds.run(1, _emptied)[0]
    assert without[:2] == (3, 3)
    assert without[2] > 0
    assert not without[3]  # the cache has newer rows than the host's memory
    assert with_prefetch == (0, 0, 0, True)


def _refusal(place: Place, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        make_learner(place, **settings)
    return str(caught.value)


@pytest.mark.parametrize("choice", ["fused_sparse_dist", "semi_sync", "prefetch"])
def test_pipelines_of_gpus_are_refused_on_cpus(worlds: Worlds, choice: str) -> None:
    said = worlds.run(1, _refusal, {"pipeline": choice})[0]
    assert said.startswith(f"pipeline is {choice}, which torchrec has for GPUs only; on CPUs take")


def test_a_deterministic_run_is_not_semi_synchronous() -> None:
    with pytest.raises(ConfigError, match=r"pipeline is semi_sync.* but deterministic is on; take another"):
        make_config({"pipeline": "semi_sync", "deterministic": True})


def _paths(place: Place) -> list[dict[str, str]]:
    learners = [make_learner(place, pipeline=choice) for choice in ("plain", "auto", "sparse_dist")]
    return [learner.paths.to_json() for learner in learners]


def test_a_run_reports_the_ways_that_it_takes(worlds: Worlds) -> None:
    eager = {"pipeline": "plain", "dense": "eager"}
    alone, among_two = worlds.run(1, _paths)[0], worlds.run(2, _paths)[0]
    assert alone == [
        {"look_up": "direct", **eager},
        {"look_up": "direct", **eager},
        {"look_up": "torchrec", "pipeline": "sparse_dist", "dense": "eager"},
    ]
    assert [each["look_up"] for each in among_two] == ["torchrec"] * 3
