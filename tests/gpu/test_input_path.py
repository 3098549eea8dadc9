"""The input path on a real GPU: `python -m pytest tests/gpu/test_input_path.py`.

Everything here is also tested on the CPU, by test_device_input.py. These tests show that the GPU's batches
are the same, and that nothing waits for the GPU where batches are made.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_device_input import KINDS, SMALL_BLOCKS, assert_same, make_split, streams
from tests.trainer.support_runs import run_here
from trainer.data.checks import BatchChecks
from trainer.data.device.checks import DeviceChecks
from trainer.data.device.lane import lane_of
from trainer.data.device.stream import DeviceStream
from trainer.data.device.windows import permutation_on
from trainer.data.formats.prepared import PreparedSource
from trainer.data.order import permutation
from trainer.data.sample_sums import sum_samples
from trainer.models.inputs import InputMaker
from trainer.sharding.digest import SampleDigest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


@pytest.fixture
def gpu() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_the_cpu_bit_for_bit(kind: str, gpu: torch.device, *, shuffle: bool) -> None:
    split = make_split(kind)
    for batch_size, rank, world_size, start in (
        (100, 0, 1, 0),
        (37, 1, 3, 400),
        (7, 4, 5, 998),
        (400, 0, 2, 11),
    ):
        part = {"rank": rank, "world_size": world_size, "start_sample": start, "epoch": 2, "shuffle": shuffle}
        for made, expected in streams(split, gpu, batch_size=batch_size, **part):
            assert_same(made, expected, 2)


def test_windows_of_the_usual_size_are_those_of_the_cpu(gpu: torch.device) -> None:
    split = make_split("one_hot", 400_000, shard_rows=150_000, dense=13)
    usual = {"block_rows": 16_384, "window_blocks": 8}
    for made, expected in streams(split, gpu, batch_size=65_536, epoch=1, **usual):
        assert_same(made, expected, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_making_batches_and_inputs_does_not_wait_for_the_gpu(kind: str, gpu: torch.device) -> None:
    split = make_split(kind, 3000)
    options: dict[str, Any] = {
        "batch_size": 128,
        "rank": 0,
        "world_size": 1,
        "seed": 1,
        "epoch": 0,
        **SMALL_BLOCKS,
    }
    make_input = InputMaker([f"C{place}" for place in range(len(split.hotness) + len(split.list_places))], 1)
    seen, expected = SampleDigest(), SampleDigest()
    list(DeviceStream(split, gpu, **options))  # loads the kernels
    lane = lane_of(gpu)
    for batch in DeviceStream(split, gpu, **options):
        with _no_waiting():
            with lane.work():
                made = make_input(batch)
            mark = lane.mark()
            assert mark is not None
            torch.cuda.current_stream().wait_event(mark)
            made.record_stream(torch.cuda.current_stream())
            same = made.to(gpu, non_blocking=True)
            assert same.dense.data_ptr() == made.dense.data_ptr()
            assert same.sparse.values().data_ptr() == made.sparse.values().data_ptr()
            assert sum(same.sparse.length_per_key()) == same.sparse.values().numel()
            seen.add_sums(batch.sums, len(batch)) if batch.sums is not None else None
    with _no_waiting():
        list(DeviceStream(split, gpu, **options))
    expected.update(0, torch.arange(3000))
    assert seen.hex() == expected.hex()


def test_the_permutation_and_the_sums_are_those_of_the_cpu(gpu: torch.device) -> None:
    for size, key in ((1, 0), (2, 7), (1000, 2**64 - 1), (131_072, 0x1234_5678_9ABC_DEF0), (131_071, 3)):
        assert permutation_on(gpu, size, key).tolist() == permutation(size, key).tolist()
    ids = torch.arange(100_000)
    assert torch.equal(sum_samples(3, ids.to(gpu)).cpu(), sum_samples(3, ids))


def test_a_bad_id_is_flagged_and_replaced_on_the_gpu(tmp_path: Path, gpu: torch.device) -> None:
    write_dataset(tmp_path, train_rows=1000, test_rows=20, num_dense=3, num_sparse=4)
    source = PreparedSource(str(tmp_path))
    checks = DeviceChecks(
        BatchChecks(source, dict.fromkeys(source.num_embeddings, 20), hash_overflow=False), gpu
    )
    good = DeviceChecks(BatchChecks(source, source.num_embeddings, hash_overflow=False), gpu)
    stream = DeviceStream(source.split("train"), gpu, batch_size=100, rank=0, world_size=1, seed=1, epoch=0)
    for batch in stream:
        with _no_waiting():
            cleaned, bad = checks(batch)
            same, fine = good(batch)
        torch.cuda.synchronize()
        assert bad is not None
        assert fine is not None
        assert (bool(bad), bool(fine)) == (True, False)
        assert int(cleaned.sparse.max()) < 20
        assert torch.equal(same.sparse, batch.sparse)


def test_a_run_sees_the_same_samples_and_losses_by_both_paths(tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_dataset(data, train_rows=5000, test_rows=500, num_dense=3, num_sparse=4)
    given: dict[str, Any] = {"device": "cuda", "deterministic": True, "num_epochs": 2, "batch_size": 64}
    outcomes = [
        run_here(data, tmp_path / path / pipeline, device_input=path, pipeline=pipeline, **given)
        for path in ("auto", "off")
        for pipeline in ("plain", "sparse_dist")
    ]
    assert [outcome.code for outcome in outcomes] == [0] * 4
    assert len({outcome.summary["samples_digest"] for outcome in outcomes}) == 1
    assert len({outcome.summary["model_digest"] for outcome in outcomes}) == 1
    assert len({outcome.summary["auc"] for outcome in outcomes}) == 1
    losses = [[line["loss"] for line in outcome.lines("train")] for outcome in outcomes]
    assert all(each == losses[0] for each in losses)
