from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.support_device_input import KINDS, SMALL_BLOCKS, assert_same, make_split, streams
from trainer.base.errors import DatasetError
from trainer.data.device.stream import DeviceStream
from trainer.data.device.windows import permutation_on
from trainer.data.order import permutation
from trainer.data.sample_sums import sum_samples
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from trainer.data.source import ArrayParts

CPU = torch.device("cpu")
ROWS = 1000
SPLITS: dict[str, ArrayParts] = {kind: make_split(kind, ROWS) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=25)
@given(
    place=st.tuples(st.integers(1, 5), st.integers(0, 4)),
    batch_size=st.integers(1, 400),
    start=st.integers(0, ROWS),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
)
def test_batches_are_those_of_the_cpu_bit_for_bit(
    kind: str, place: tuple[int, int], batch_size: int, start: int, *, epoch: int, shuffle: bool
) -> None:
    world_size, rank = place
    options = {"batch_size": max(batch_size, 20 if start < ROWS // 2 else 1), "start_sample": start}
    for made, expected in streams(
        SPLITS[kind],
        CPU,
        rank=rank % world_size,
        world_size=world_size,
        epoch=epoch,
        shuffle=shuffle,
        **options,
    ):
        assert_same(made, expected, epoch)


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_without_samples_in_the_last_step_get_an_empty_batch(kind: str) -> None:
    last = [
        list(streams(SPLITS[kind], CPU, batch_size=7, rank=rank, world_size=5, start_sample=ROWS - 2))[-1]
        for rank in range(5)
    ]
    assert sorted(len(made) for made, _ in last) == [0, 0, 0, 1, 1]
    for made, expected in last:
        assert_same(made, expected, 0)


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_the_number_of_readers_does_not_change_the_batches(readers: int) -> None:
    for made, expected in streams(SPLITS["one_hot"], CPU, batch_size=50, epoch=1):
        assert_same(made, expected, 1)
    options: dict[str, Any] = {
        "batch_size": 50,
        "rank": 0,
        "world_size": 1,
        "seed": 1,
        "epoch": 0,
        **SMALL_BLOCKS,
    }
    ids = [batch.sample_ids for batch in DeviceStream(SPLITS["one_hot"], CPU, readers=readers, **options)]
    one = [batch.sample_ids for batch in DeviceStream(SPLITS["one_hot"], CPU, readers=1, **options)]
    assert torch.equal(torch.cat(ids), torch.cat(one))


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
@settings(deadline=None, max_examples=50)
def test_the_permutation_on_a_device_is_that_of_the_cpu(size: int, key: int) -> None:
    assert permutation_on(CPU, size, key).tolist() == permutation(size, key).tolist()


@given(ids=st.lists(st.integers(0, 2**62)), epoch=st.integers(0, 9))
@settings(deadline=None, max_examples=50)
def test_the_digest_of_sums_is_that_of_samples(ids: list[int], epoch: int) -> None:
    samples = torch.tensor(ids, dtype=torch.int64)
    by_samples, by_sums = SampleDigest(), SampleDigest()
    for _ in range(2):
        by_samples.update(epoch, samples)
        by_sums.add_sums(sum_samples(epoch, samples), len(samples))
    assert by_sums.hex() == by_samples.hex()
    assert by_sums.state() == by_samples.state()
    assert by_sums.count == by_samples.count


def test_an_error_of_a_reader_is_raised_where_its_rows_are_needed() -> None:
    split = make_split("one_hot", ROWS)

    class Torn:
        def __init__(self, of: ArrayParts) -> None:
            self._of = of

        def __getattr__(self, name: str) -> Any:
            return getattr(self._of, name)

        def arrays(self, index: int) -> Any:
            if index == 2:
                raise DatasetError("shard 2 is torn")
            return self._of.arrays(index)

    torn: Any = Torn(split)
    stream = DeviceStream(
        torn, CPU, batch_size=50, rank=0, world_size=1, seed=1, epoch=0, shuffle=False, start_sample=0
    )
    with pytest.raises(DatasetError, match="shard 2 is torn"):
        list(stream)
    assert not _readers()


def test_leaving_a_stream_ends_its_readers() -> None:
    options: dict[str, Any] = {
        "batch_size": 10,
        "rank": 0,
        "world_size": 1,
        "seed": 1,
        "epoch": 0,
        **SMALL_BLOCKS,
    }
    stream = iter(DeviceStream(SPLITS["one_hot"], CPU, **options))
    next(stream)
    assert _readers()
    stream.close()  # type: ignore[attr-defined] # a generator, as every stopped run leaves it
    assert not _readers()


def _readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "reader"]
