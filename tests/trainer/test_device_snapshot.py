"""Snapshots of a device's tables: as of the cut though training continues, in a fixed amount of memory."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import psutil
import pytest
import torch

from tests.trainer.support_device import (
    SAVES,
    DeviceModel,
    ImpatientDevice,
    LateDevice,
    UnorderedDevice,
    save_while_training,
    torn,
)
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.format.coding import encode_rows
from trainer.checkpoint.save.limits import StreamLimits
from trainer.checkpoint.save.saves import SavingOptions
from trainer.checkpoint.save.touched_bits import TouchedBits

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.checkpoint.save.saves import Mode

SMALL = StreamLimits(chunk=4096, copied=1 << 20)


@pytest.mark.parametrize("mode", ["full", "incremental"])
@pytest.mark.parametrize("eager", [0.0, 0.4])
@pytest.mark.parametrize("copied", [3000, 1 << 20], ids=["little room", "room"])
def test_a_checkpoint_has_the_values_of_the_cut_whatever_training_changes_meanwhile(
    tmp_path: Path, mode: Mode, eager: float, copied: int
) -> None:
    device = LateDevice(eager=eager, seed=7)
    model = DeviceModel(device)
    options = SavingOptions(mode=mode, in_background=True, stream=StreamLimits(chunk=4096, copied=copied))
    reports, cuts = save_while_training(tmp_path, model, options, device=device)
    assert [report.step for report in reports] == list(range(1, SAVES + 1))
    assert all((report.kind == "full") == (mode == "full") for report in reports)
    assert torn(tmp_path, cuts, model) == []


def test_a_save_that_is_not_in_the_background_is_streamed_as_well(tmp_path: Path) -> None:
    device = LateDevice()
    model = DeviceModel(device)
    options = SavingOptions(mode="full", stream=SMALL)
    _, cuts = save_while_training(tmp_path, model, options, device=device)
    assert torn(tmp_path, cuts, model) == []
    assert device.pinned.peak == 2 * SMALL.chunk


def test_many_small_copies_are_joined_without_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.checkpoint.save.table_stream._MOST_PIECES", 1)
    monkeypatch.setattr("trainer.checkpoint.save.table_stream._PIECE_BYTES", 1000)
    device = LateDevice(eager=0.2, seed=3)
    model = DeviceModel(device)
    options = SavingOptions(mode="full", in_background=True, stream=SMALL)
    _, cuts = save_while_training(tmp_path, model, options, device=device)
    assert torn(tmp_path, cuts, model) == []


@pytest.mark.parametrize("mode", ["full", "incremental"])
def test_training_that_does_not_wait_for_the_copies_tears_a_checkpoint(tmp_path: Path, mode: Mode) -> None:
    device = UnorderedDevice()
    model = DeviceModel(device)
    options = SavingOptions(mode=mode, in_background=True, stream=SMALL)
    _, cuts = save_while_training(tmp_path, model, options, device=device)
    assert torn(tmp_path, cuts, model)


def test_a_pinned_buffer_that_is_sent_before_its_event_has_other_bytes(tmp_path: Path) -> None:
    device = ImpatientDevice()
    model = DeviceModel(device)
    options = SavingOptions(mode="full", in_background=True, stream=SMALL)
    _, cuts = save_while_training(tmp_path, model, options, device=device)
    assert torn(tmp_path, cuts, model)


def test_the_memory_of_a_snapshot_is_that_of_its_buffers_and_of_the_copied_rows(tmp_path: Path) -> None:
    limits = StreamLimits(chunk=8192, copied=20_000)
    device = LateDevice(eager=0.5)
    model = DeviceModel(device)
    options = SavingOptions(mode="full", in_background=True, stream=limits)
    reports, cuts = save_while_training(tmp_path, model, options, device=device)
    size = sum(tensor.nbytes for tensor in model.tensors.values())
    assert size > 10 * limits.chunk
    assert device.pinned.peak <= 2 * limits.chunk
    assert device.used.peak <= 2 * limits.chunk + 2 * limits.copied  # twice while pieces are joined
    assert (device.pinned.now, device.used.now) == (0, 0)
    assert torn(tmp_path, cuts, model) == []
    assert all(report.seconds > 0 for report in reports)


def test_a_snapshot_of_hundreds_of_megabytes_takes_a_tenth_of_it_in_host_memory(tmp_path: Path) -> None:
    device = LateDevice(eager=0.5)
    model = DeviceModel(device, rows=3_000_000)
    size = sum(tensor.nbytes for tensor in model.tensors.values())
    options = SavingOptions(mode="full", in_background=True)
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options, device=device) as writer:
        writer.save(1, model.state, {}, {}, wait=False)
        cut = model.tensors["tables/c/weight"].clone()
        steps = 0
        while writer.is_saving:
            model.train(2000)
            steps += 1
            writer.poll()
    assert size > 250_000_000
    assert device.pinned.peak == 2 * StreamLimits().chunk < size // 8
    assert device.used.peak < size // 2
    assert steps > 1
    model.spoil()
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1) as writer:
        writer.load(1, model.state)
    assert torch.equal(model.tensors["tables/c/weight"], cut)


def _writer() -> psutil.Process:
    """The process that writes checkpoints; children of other tests may have ended and wait to be reaped."""
    (found,) = (
        each
        for each in psutil.Process().children()
        if each.status() != psutil.STATUS_ZOMBIE and "trainer.checkpoint.save.writer" in each.cmdline()
    )
    return found


def test_training_waits_once_the_copies_take_all_room_and_the_report_says_how_long(tmp_path: Path) -> None:
    device = LateDevice(eager=1.0)
    model = DeviceModel(device, rows=200_000)
    options = SavingOptions(
        mode="full", in_background=True, stream=StreamLimits(chunk=1 << 16, copied=1 << 16)
    )
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options, device=device) as writer:
        writer.save(1, model.state, {}, {})
        _writer().suspend()
        writer.save(2, model.state, {}, {}, wait=False)
        pause_s = 0.5
        process = _writer()
        signal.signal(signal.SIGALRM, lambda *_: process.resume())
        signal.setitimer(signal.ITIMER_REAL, pause_s)
        cut, started = model.copy(), time.monotonic()
        model.train(5000)
        waited_s = time.monotonic() - started
        (report,) = writer.poll(wait=True)
        assert waited_s > pause_s / 2
        assert report.seconds > waited_s * 0.8
        model.spoil()
        writer.load(2, model.state)
    assert all(torch.equal(cut[name], tensor) for name, tensor in model.tensors.items())


def test_a_writer_that_reads_no_more_holds_up_training_for_a_limited_time_and_the_save_is_repeated(
    tmp_path: Path,
) -> None:
    device = LateDevice(eager=1.0)
    model = DeviceModel(device, rows=200_000)
    options = SavingOptions(
        mode="full",
        in_background=True,
        stream=replace(SMALL, chunk=1 << 16, copied=1 << 16, silence_s=1.0),
    )
    with Checkpointer(str(tmp_path), keep=1, rank=0, world_size=1, options=options, device=device) as writer:
        writer.save(1, model.state, {}, {})
        process = _writer()
        process.suspend()
        writer.save(2, model.state, {}, {}, wait=False)
        model.train(5000)
        process.kill()
        assert writer.poll(wait=True) == []
        writer.save(2, model.state, {}, {})
        cut = model.copy()
        model.spoil()
        writer.load(2, model.state)
    assert all(torch.equal(cut[name], tensor) for name, tensor in model.tensors.items())


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000, (1 << 20) + 13])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.03, 0.04, 0.5, 1.0])
def test_bits_of_rows_are_coded_like_their_numbers(size: int, share: float) -> None:
    flags = np.random.default_rng(size).random(size) < share
    rows = np.flatnonzero(flags)
    stamps = torch.from_numpy(np.where(flags, 5, 3).astype(np.uint8))
    found = TouchedBits.find(stamps, 4)
    assert len(found) == len(rows)
    assert found.encoded() == encode_rows(rows, size)
    for most in (1, 100, 1 << 30) if size <= 1000 else (1000, 1 << 30):
        chunks = list(found.chunks(most))
        assert all(0 < len(chunk) <= most for chunk in chunks)
        assert np.array_equal(np.concatenate([np.empty(0, np.int64), *chunks]), rows)
