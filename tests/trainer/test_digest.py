from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from trainer.checkpoint import Entry, Shard, State
from trainer.digest import SampleDigest, model_digest
from trainer.errors import TrainerError

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place, RankPool


def _digest(*pairs: tuple[int, torch.Tensor]) -> SampleDigest:
    digest = SampleDigest()
    for epoch, ids in pairs:
        digest.update(epoch, ids)
    return digest


def _merged(place: Place, ids: torch.Tensor) -> str:
    digest = _digest((3, ids[place.rank :: place.world_size]))
    return digest.merge(place.group).hex()


def test_the_sample_digest_ignores_order_and_batches() -> None:
    ids = torch.arange(1000)
    shuffled = ids[torch.randperm(1000)]
    whole = _digest((0, ids))
    assert _digest((0, shuffled[:300]), (0, shuffled[300:])).hex() == whole.hex()
    assert whole.count == 1000


@pytest.mark.parametrize(
    "other",
    [
        [(0, torch.arange(999))],  # one lost
        [(0, torch.arange(1000)), (0, torch.tensor([5]))],  # one repeated
        [(1, torch.arange(1000))],  # another epoch
        [(0, torch.arange(1, 1001))],  # other samples
        [(0, torch.cat([torch.arange(999), torch.tensor([0])]))],  # one in place of another
    ],
)
def test_the_sample_digest_sees_every_lost_repeated_or_other_sample(
    other: list[tuple[int, torch.Tensor]],
) -> None:
    assert _digest(*other).hex() != _digest((0, torch.arange(1000))).hex()


def test_the_sample_digest_is_the_same_on_every_world_size(ranks: RankPool) -> None:
    ids = torch.randperm(5000)
    expected = _digest((3, ids)).hex()
    for world_size in (1, 2, 3):
        assert ranks.run(world_size, _merged, ids) == [expected] * world_size


def test_the_sample_digest_goes_on_from_a_checkpoint() -> None:
    resumed = SampleDigest.from_state(_digest((0, torch.arange(400))).state())
    resumed.update(0, torch.arange(400, 1000))
    assert resumed.hex() == _digest((0, torch.arange(1000))).hex()


def _global_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {
        "tables/a/weight": torch.randn(300, 8, generator=generator),
        "tables/a/sums": torch.rand(300, generator=generator),
        "tables/b/weight": torch.randn(50, 8, generator=generator).to(torch.bfloat16),
        "tables/c/weight": torch.randn(64, 6, generator=generator),
        "dense/kernel": torch.randn(3, 4, 5, generator=generator),
        "dense/step": torch.tensor(7, dtype=torch.int64),
    }


def _whole(tensors: dict[str, torch.Tensor]) -> State:
    return {
        name: Entry(tuple(tensor.shape), (Shard(tensor, (0,) * tensor.ndim),))
        for name, tensor in tensors.items()
    }


def _cut(place: Place) -> State:
    """Table a by rows, b whole on the last rank, c by columns, the dense part everywhere."""
    tensors, rank, size = _global_tensors(), place.rank, place.world_size
    state: dict[str, Entry] = {}
    for name, tensor in tensors.items():
        shape = tuple(tensor.shape)
        axis = {"a": 0, "c": 1}.get(name.split("/")[1])
        if axis is not None:
            low, high = shape[axis] * rank // size, shape[axis] * (rank + 1) // size
            offsets = tuple(low if dimension == axis else 0 for dimension in range(tensor.ndim))
            state[name] = Entry(shape, (Shard(tensor.narrow(axis, low, high - low), offsets),))
        elif name.startswith("tables/b"):
            held = (Shard(tensor, (0, 0)),) if rank == size - 1 else ()
            state[name] = Entry(shape, held)
        else:
            state[name] = Entry(shape, (Shard(tensor, (0,) * tensor.ndim),), replicated=True)
    return state


def _cut_digest(place: Place) -> str:
    return model_digest(_cut(place), place.group)


def test_the_model_digest_does_not_depend_on_how_the_model_is_cut(ranks: RankPool) -> None:
    expected = model_digest(_whole(_global_tensors()))
    for world_size in (1, 2, 3):
        assert ranks.run(world_size, _cut_digest) == [expected] * world_size


@pytest.mark.parametrize("name", _global_tensors())
def test_the_model_digest_sees_one_flipped_bit_in_any_tensor(name: str) -> None:
    expected = model_digest(_whole(_global_tensors()))
    changed = _global_tensors()
    flat = changed[name].reshape(-1).view(torch.uint8)
    flat[-1] ^= 1
    assert model_digest(_whole(changed)) != expected
    flat[-1] ^= 0x81  # the low bit back, the highest flipped
    assert model_digest(_whole(changed)) != expected


def test_the_model_digest_sees_swapped_rows_names_and_shapes() -> None:
    tensors = {"x": torch.arange(12.0).reshape(3, 4), "y": torch.ones(3, 4)}
    variants: list[dict[str, torch.Tensor]] = [
        tensors,
        {**tensors, "x": tensors["x"].flip(0)},
        {**tensors, "x": tensors["x"].flip(1)},
        {"x": tensors["y"], "y": tensors["x"]},
        {**tensors, "x": tensors["x"].reshape(4, 3)},
        {**tensors, "x": tensors["x"].to(torch.float64)},
        {"x": tensors["x"]},
    ]
    assert len({model_digest(_whole(variant)) for variant in variants}) == len(variants)


def test_the_model_digest_refuses_a_tensor_that_is_not_all_there() -> None:
    half = {"x": Entry((10, 2), (Shard(torch.zeros(5, 2), (0, 0)),))}
    with pytest.raises(TrainerError, match="x: all ranks together hold 10 of its 20 elements"):
        model_digest(half)
