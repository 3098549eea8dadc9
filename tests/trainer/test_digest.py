from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

from tests.trainer.support_state import cut, global_tensors, whole
from trainer.base.errors import TrainerError
from trainer.checkpoint import Entry, TensorShard
from trainer.data.mixing import split_mix
from trainer.data.splitmix import splitmix64
from trainer.sharding.digest import SampleDigest, model_digest

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
def test_the_sample_digest_detects_every_lost_repeated_or_changed_sample(
    other: list[tuple[int, torch.Tensor]],
) -> None:
    assert _digest(*other).hex() != _digest((0, torch.arange(1000))).hex()


def test_the_sample_digest_is_the_same_on_every_world_size(ranks: RankPool) -> None:
    ids = torch.randperm(5000)
    expected = _digest((3, ids)).hex()
    for world_size in (1, 2, 3):
        assert ranks.run(world_size, _merged, ids) == [expected] * world_size


def test_the_sample_digest_resumes_from_a_checkpoint() -> None:
    resumed = SampleDigest.from_state(_digest((0, torch.arange(400))).state())
    resumed.update(0, torch.arange(400, 1000))
    assert resumed.hex() == _digest((0, torch.arange(1000))).hex()


def _cut_digest(place: Place) -> str:
    return model_digest(cut(place, global_tensors()), place.group)


def test_the_model_digest_does_not_depend_on_sharding(ranks: RankPool) -> None:
    expected = model_digest(whole(global_tensors()))
    for world_size in (1, 2, 3):
        assert ranks.run(world_size, _cut_digest) == [expected] * world_size


@pytest.mark.parametrize("name", global_tensors())
def test_the_model_digest_detects_one_flipped_bit_in_any_tensor(name: str) -> None:
    expected = model_digest(whole(global_tensors()))
    changed = global_tensors()
    flat = changed[name].reshape(-1).view(torch.uint8)
    flat[-1] ^= 1
    assert model_digest(whole(changed)) != expected
    flat[-1] ^= 0x81  # the low bit back, the highest flipped
    assert model_digest(whole(changed)) != expected


def test_the_model_digest_detects_swapped_rows_names_and_shapes() -> None:
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
    assert len({model_digest(whole(variant)) for variant in variants}) == len(variants)


def test_the_model_digest_refuses_an_incomplete_tensor() -> None:
    half = {"x": Entry((10, 2), (TensorShard(torch.zeros(5, 2), (0, 0)),))}
    with pytest.raises(TrainerError, match="x: all ranks together hold 10 of its 20 elements"):
        model_digest(half)


def test_the_model_digest_stays_the_same_in_later_versions_of_the_trainer() -> None:
    expected = "adc3f8cd4ab3ba057f366cd8587367e5eb30646716fcd24bc5bb5f2b97641e6a"
    assert model_digest(whole(global_tensors())) == expected


def test_the_model_digest_detects_every_single_flipped_bit() -> None:
    tensors = {"x": torch.randn(200, 40, generator=torch.Generator().manual_seed(1))}
    bits, found = tensors["x"].view(-1).view(torch.int32), {model_digest(whole(tensors))}
    places = torch.randint(len(bits), (400,), generator=torch.Generator().manual_seed(2)).tolist()
    flips = {(place, number % 32) for number, place in enumerate(places)}
    for place, bit in flips:
        mask = 1 << bit if bit < 31 else -(1 << 31)
        bits[place] ^= mask
        found.add(model_digest(whole(tensors)))
        bits[place] ^= mask
    assert len(found) == len(flips) + 1


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.float32, torch.int64])
def test_the_model_digest_does_not_depend_on_the_size_of_its_chunks(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = torch.randint(-90, 90, (3000, 7), generator=torch.Generator().manual_seed(1)).to(dtype)
    expected = model_digest(whole({"x": values}))
    monkeypatch.setattr("trainer.sharding.digest._CHUNK", 100)
    assert model_digest(whole({"x": values})) == expected


def test_the_factors_are_those_of_the_module_for_numpy() -> None:
    values = np.arange(-500, 500, dtype=np.int64) * 0x1234567
    expected = splitmix64(values.view(np.uint64)).view(np.int64)
    assert np.array_equal(split_mix(torch.from_numpy(values)).numpy(), expected)
