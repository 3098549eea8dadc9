from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.support_device_input import KINDS, SMALL_BLOCKS, assert_same, make_split, streams
from tests.trainer.support_learner import make_learner
from trainer.base.errors import DatasetError
from trainer.data.device.lane import SideLane
from trainer.data.device.layout import SplitLayout
from trainer.data.device.loads import ReadPlan
from trainer.data.device.reading import WindowReader
from trainer.data.device.stream import DeviceStream
from trainer.data.device.windows import permutation_on
from trainer.data.order import EpochOrder, permutation
from trainer.data.sample_sums import sum_samples
from trainer.data.stream import BatchStream
from trainer.models.inputs import InputMaker
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.data.source import ArrayParts

CPU = torch.device("cpu")
ROWS = 1000
SPLITS: dict[str, ArrayParts] = {kind: make_split(kind, ROWS) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None, max_examples=25)
@given(
    place=st.tuples(st.integers(1, 11), st.integers(0, 10)),
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


def _train(place: Place, kind: str, settings: dict[str, Any], *, on_device: bool) -> tuple[list[float], str]:
    """The losses of two epochs and the digest of their samples."""
    split = make_split(kind, 300, shard_rows=120, ids=20)
    part: dict[str, Any] = {"batch_size": 32, "rank": place.rank, "world_size": place.world_size, "seed": 3}
    learner = make_learner(place, deterministic=True, **settings)
    seen = SampleDigest()
    losses: list[float] = []
    for epoch in range(2):
        batches = (
            DeviceStream(split, CPU, epoch=epoch, **part)
            if on_device
            else BatchStream(split, epoch=epoch, **part)
        )
        for step in learner.pipeline.steps(batches, len(losses)):
            losses.append(float(step.loss))
            if step.batch.sums is None:
                seen.update(epoch, step.batch.sample_ids)
            else:
                seen.add_sums(step.batch.sums, len(step.batch))
    return losses, seen.merge(place.group).hex()


@pytest.mark.parametrize("kind", ["one_hot", "bags"])
@pytest.mark.parametrize(
    ("size", "settings"),
    [
        (1, {}),
        (1, {"pipeline": "sparse_dist"}),
        (2, {"pipeline": "sparse_dist", "sharding_types": ["row_wise"]}),
        (2, {"read_ahead": 0}),
    ],
    ids=str,
)
def test_training_is_the_same_by_both_paths(
    worlds: Worlds, kind: str, size: int, settings: dict[str, Any]
) -> None:
    ours = worlds.run(size, partial(_train, on_device=True), kind, settings)
    theirs = worlds.run(size, partial(_train, on_device=False), kind, settings)
    assert len(ours[0][0]) == 2 * -(-300 // (32 * size))
    assert ours == theirs


@pytest.mark.parametrize("kind", KINDS)
def test_the_ids_of_each_key_are_known_without_reading_lengths(kind: str) -> None:
    split = SPLITS[kind]
    keys = [f"C{number}" for number in range(len(split.hotness) + len(split.list_places))]
    for batches in zip(*streams(split, CPU, batch_size=90, rank=1, world_size=2), strict=True):
        for batch in batches:
            made = InputMaker(keys, 2, equal=True)(batch).sparse
            known = (made.length_per_key_or_none(), made.offset_per_key_or_none())
            made.unsync()
            assert known == (made.length_per_key(), made.offset_per_key())


def _scores(place: Place, kind: str, *, on_device: bool) -> list[list[float]]:
    split = make_split(kind, 300, shard_rows=120, ids=20)
    learner = make_learner(place, read_ahead=place.rank)  # with a thread, and without one
    part: dict[str, Any] = {"batch_size": 64, "rank": place.rank, "world_size": place.world_size, "seed": 0}
    part |= {"epoch": 0, "shuffle": False}
    stream = DeviceStream(split, CPU, **part) if on_device else BatchStream(split, **part)
    return [torch.cat(each).tolist() for each in zip(*learner.score(stream), strict=True)]


@pytest.mark.parametrize("kind", ["one_hot", "bags"])
def test_scores_are_the_same_by_both_paths(worlds: Worlds, kind: str) -> None:
    ours = worlds.run(2, partial(_scores, on_device=True), kind)
    assert ours == worlds.run(2, partial(_scores, on_device=False), kind)
    assert sum(len(scores) for scores, _ in ours) == 300


class _LateMark:
    """An event of a device that has copied only once it is waited for."""

    def __init__(self, staged: list[tuple[torch.Tensor, torch.Tensor]], spoilt: list[int]) -> None:
        self._staged, self._spoilt = staged, spoilt

    def synchronize(self) -> None:
        self._spoilt += [len(content) for buffer, content in self._staged if not torch.equal(buffer, content)]
        self._staged.clear()


class _LateLane(SideLane):
    """A device that reads a buffer at the last moment at which it may."""

    def __init__(self) -> None:
        super().__init__(CPU)
        self.spoilt: list[int] = []
        self.marks: list[_LateMark] = []
        self._local = threading.local()

    def send(self, staged: torch.Tensor) -> torch.Tensor:
        self._local.staged = [(staged, staged.clone())]
        return super().send(staged)

    def mark(self) -> Any:
        self.marks.append(_LateMark(self._local.staged, self.spoilt))
        return self.marks[-1]


def test_a_buffer_is_filled_again_only_when_the_device_has_its_content() -> None:
    split, lane = make_split("lists", 5000), _LateLane()
    order = EpochOrder(split.rows, seed=1, epoch=0, **SMALL_BLOCKS)
    plan = ReadPlan(split.rows, start=0, global_batch=50, rank=0, world_size=1, epoch=0, order=order)
    with WindowReader(plan, SplitLayout(split), lane, readers=2) as reader:
        for load in plan.loads():
            reader.window(load.number)
            reader.release()
    assert len(lane.marks) == len(list(plan.loads())) > 20
    for mark in lane.marks:  # those of buffers that were not needed again, if the others were waited for
        mark.synchronize()
    assert not lane.spoilt


def _readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "reader"]
