from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_learner import make_batches, make_learner, train_losses
from trainer.checkpoint import Entry
from trainer.sharding.digest import model_digest

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

SMOOTH = {"dense_optimizer": "sgd", "dense_learning_rate": 0.05, "learning_rate": 0.05}
UNEVEN = [64] * 9 + [1]  # the last step of an epoch: one sample, so that all ranks but one have none


def _losses(place: Place, sizes: list[int], settings: dict[str, Any]) -> list[float]:
    return train_losses(place, make_learner(place, **settings), sizes)


def _initial_digest(place: Place, settings: dict[str, Any]) -> str:
    return model_digest(make_learner(place, **settings).state, place.group)


def _final_tables(place: Place, sizes: list[int]) -> dict[str, list[tuple[tuple[int, ...], torch.Tensor]]]:
    learner = make_learner(place, **SMOOTH)
    train_losses(place, learner, sizes)
    return {
        name: [(shard.offsets, shard.tensor.clone()) for shard in entry.shards]
        for name, entry in learner.state.items()
    }


def _state_names(place: Place, settings: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: entry.shape for name, entry in make_learner(place, **settings).state.items()}


def _scores(place: Place, pipeline: str) -> list[torch.Tensor]:
    learner = make_learner(place, pipeline=pipeline, **SMOOTH)
    scores = []
    for _ in learner.pipeline.steps(make_batches(place, [32] * 6), 0):
        parts = [logits for logits, _ in learner.score(make_batches(place, [48, 1]))]
        scores.append(torch.cat(parts))
    return scores


def _learns_at(place: Place, factor: str) -> tuple[list[float], float]:
    learner = make_learner(place, lr_decay=factor, lr_warmup_steps=2, **SMOOTH)
    steps = learner.pipeline.steps(make_batches(place, [8] * 5), 0)
    rates = [learner.dense_optimizer.param_groups[0]["lr"] for _ in steps]
    return rates, learner.optimizers.learning_rate


@pytest.mark.parametrize("world_size", [2, 3])
def test_losses_do_not_depend_on_the_number_of_ranks(worlds: Worlds, world_size: int) -> None:
    sizes = [64] * 100
    one = worlds.run(1, _losses, sizes, SMOOTH)[0]
    several = worlds.run(world_size, _losses, sizes, SMOOTH)[0]
    assert several == pytest.approx(one, abs=1e-5)
    assert one[-1] < 0.9 * one[0]


def test_ranks_without_samples_in_a_step_change_nothing(worlds: Worlds) -> None:
    one = worlds.run(1, _losses, UNEVEN * 3, SMOOTH)[0]
    three = worlds.run(3, _losses, UNEVEN * 3, SMOOTH)[0]
    assert three == pytest.approx(one, abs=1e-5)


def test_two_ranks_have_the_weights_and_accumulators_of_one_rank(worlds: Worlds) -> None:
    one = worlds.run(1, _final_tables, UNEVEN)[0]
    two = worlds.run(2, _final_tables, UNEVEN)
    for name, [(_, whole)] in one.items():
        pieces = [piece for rank in two for piece in rank[name]]
        assert pieces, name
        for offsets, tensor in pieces:
            part = whole[tuple(slice(o, o + n) for o, n in zip(offsets, tensor.shape, strict=True))]
            torch.testing.assert_close(tensor, part, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("pipeline", ["plain", "sparse_dist"])
def test_a_model_starts_the_same_on_any_number_of_ranks(worlds: Worlds, pipeline: str) -> None:
    digests = {worlds.run(size, _initial_digest, {"pipeline": pipeline})[0] for size in (1, 2, 3)}
    assert len(digests) == 1
    assert digests != set(worlds.run(1, _initial_digest, {"seed": 1}))


def test_state_has_the_same_names_and_shapes_on_every_rank(worlds: Worlds) -> None:
    names = worlds.run(1, _state_names, {"dense_optimizer": "adam"})[0]
    assert worlds.run(3, _state_names, {"dense_optimizer": "adam"}) == [names] * 3
    assert names["tables/C4/weight"] == (50, 8)
    assert names["tables/C4/rowwise_adagrad"] == (50,)
    assert names["dense/bottom.layers.0.weight"] == (16, 3)
    assert names["dense_optimizer/top.layers.1.bias/exp_avg"] == (1,)


def test_the_torchrec_pipeline_gives_the_scores_of_the_plain_one_with_evaluations(
    worlds: Worlds,
) -> None:
    plain = worlds.run(2, _scores, "plain")
    overlapped = worlds.run(2, _scores, "sparse_dist")
    torch.testing.assert_close(overlapped, plain, rtol=0, atol=1e-6)


def test_learning_rates_follow_the_schedule(worlds: Worlds) -> None:
    rates, of_tables = worlds.run(1, _learns_at, "none")[0]
    assert rates == pytest.approx([0.05 / 3, 0.1 / 3, 0.05, 0.05, 0.05])
    assert of_tables == pytest.approx(0.05)
    falling, of_tables = worlds.run(1, _learns_at, "linear")[0]
    assert falling == pytest.approx([0.05 / 3, 0.1 / 3, 0.05, 0.05 * 97 / 98, 0.05 * 96 / 98])
    assert of_tables == pytest.approx(0.05 * 96 / 98)


def test_state_entries_share_memory_with_the_model(worlds: Worlds) -> None:
    assert worlds.run(1, _zeroed_scores)[0] == pytest.approx(0.0)


def _zeroed_scores(place: Place) -> float:
    learner = make_learner(place)
    for entry in learner.state.values():
        _zero(entry)
    return max(float(logits.abs().max()) for logits, _ in learner.score(make_batches(place, [16])))


def _zero(entry: Entry) -> None:
    for shard in entry.shards:
        shard.tensor.zero_()
