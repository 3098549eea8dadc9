from __future__ import annotations

import logging
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch

from tests.trainer.support_layers import (
    ALONE,
    BACKGROUND,
    INCREMENTAL,
    Model,
    checkpointer,
    load,
    same,
    save,
    trained,
)
from trainer.base.errors import CheckpointError
from trainer.checkpoint import Checkpointer, Entry, TensorShard
from trainer.checkpoint.save.background import BackgroundWriter
from trainer.checkpoint.save.saves import SavingOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.trainer.support_ranks import Place, RankPool

PATIENCE_S = 150.0
ROUNDS = 6  # of killing at random moments


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def _children(name: str = "trainer.checkpoint.save.writer") -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if name in _words(child)]


def _words(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:  # it has just ended
        return []
    return words


def _save_while_training(place: Place, directory: str, copied_share: float) -> list[int]:
    """Change everything right behind each cut; the steps that were committed."""
    model = Model(place)
    committed = []
    options = replace(BACKGROUND, copied_share=copied_share)
    with checkpointer(directory, place, keep=9, options=options) as writer:
        for step in range(1, 8):
            model.train(step)
            save(writer, model, step, wait=False)
            assert writer.is_saving
            model.spoil()  # the snapshot must not see it
            for name, tensor in trained(step, place).tensors.items():
                model.tensors[name].copy_(tensor)
            committed += [report.step for report in writer.poll()]
        committed += [report.step for report in writer.poll(wait=True)]
        assert not writer.is_saving
    return committed


def _all_as_trained(place: Place, directory: str, steps: int) -> list[bool]:
    with checkpointer(directory, place, options=INCREMENTAL) as writer:
        return [same(load(writer, step, place), trained(step, place)) for step in range(1, steps + 1)]


@pytest.mark.parametrize("copied_share", [0.0, 1.0])  # by a fork, and by copies
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_what_is_committed_is_the_state_of_the_cut_though_training_continued(
    ranks: RankPool, tmp_path: Path, world_size: int, copied_share: float
) -> None:
    steps = ranks.run(world_size, _save_while_training, str(tmp_path), copied_share)
    assert steps == [list(range(1, 8))] * world_size
    assert ranks.run(world_size, _all_as_trained, str(tmp_path), 7) == [[True] * 7] * world_size


def test_memory_that_a_fork_does_not_freeze_is_copied_first(tmp_path: Path) -> None:
    tensor = torch.arange(4_000_000.0).share_memory_()
    state = {"w": Entry((4_000_000,), (TensorShard(tensor, (0,)),))}
    options = SavingOptions(in_background=True)
    with checkpointer(str(tmp_path), options=options) as writer:
        writer.save(1, state, {}, {}, wait=False)
        tensor.zero_()
        assert [report.step for report in writer.poll(wait=True)] == [1]
        writer.load(1, state)
    assert torch.equal(tensor, torch.arange(4_000_000.0))


def test_the_process_that_writes_imports_no_torch_and_ends_with_its_trainer(tmp_path: Path) -> None:
    with checkpointer(str(tmp_path), options=BACKGROUND) as writer:
        save(writer, trained(1), 1)
        (process,) = _children()
        libraries = {Path(found.path).name for found in process.memory_maps()}
        assert not [name for name in libraries if "torch" in name]
        process.send_signal(signal.SIGTERM)  # what ends a whole process group must not end it
        process.send_signal(signal.SIGINT)
        save(writer, trained(2), 2)
        assert _children() == [process]
    assert not process.is_running()


def test_a_writer_that_is_killed_loses_no_row_for_the_next_save(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = Model()
    with checkpointer(str(tmp_path), options=BACKGROUND) as writer, caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            model.train(step)
            if step == 2:
                _children()[0].suspend()
            save(writer, model, step, wait=False)
            if step == 2:
                _children()[0].kill()
                _until(lambda: not writer.is_saving or bool(writer.poll()) or not writer.is_saving)
            else:
                assert [report.step for report in writer.poll(wait=True)] == [step]
        assert writer.steps() == (1, 3)
        assert same(load(writer, 3), trained(3))
    assert "the process that wrote it died; another takes over" in caplog.text


def test_a_writer_that_dies_during_a_wait_is_replaced(tmp_path: Path) -> None:
    with checkpointer(str(tmp_path), options=BACKGROUND) as writer:
        save(writer, trained(1), 1)
        _children()[0].kill()
        save(writer, trained(2), 2)
        assert writer.steps() == (1, 2)


def _fail_on_one_rank(place: Place, directory: str) -> list[str]:
    """The last rank's disk is full from step 2 on."""
    model = Model(place)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with checkpointer(directory, place, options=BACKGROUND) as writer:
        if place.rank == place.world_size - 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (6000, limits[1]))  # its writer inherits that
        try:
            model.train(1)
            save(writer, model, 1)
            model.train(2, rows=2000)
            save(writer, model, 2, wait=False)
            with pytest.raises(CheckpointError) as caught:
                writer.poll(wait=True)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert writer.steps() == (1,)
        model.train(3)
        save(writer, model, 3)
        assert same(load(writer, 3, place), _three_steps(place))
        return [str(caught.value)]


def _three_steps(place: Place) -> Model:
    model = trained(1, place)
    model.train(2, rows=2000)
    model.train(3)
    return model


@pytest.mark.parametrize("world_size", [1, 2])
def test_an_error_of_one_ranks_writer_is_everyones_at_the_next_boundary_and_spoils_nothing(
    ranks: RankPool, tmp_path: Path, world_size: int
) -> None:
    messages = ranks.run(world_size, _fail_on_one_rank, str(tmp_path))
    assert len({message[0] for message in messages}) == 1
    assert messages[0][0].startswith("the checkpoint of step 2 was not written, earlier ones are intact: ")
    assert "File too large" in messages[0][0]


def test_a_writer_without_a_heartbeat_counts_as_dead(tmp_path: Path) -> None:
    writer = BackgroundWriter(silence_s=0.2)
    try:
        writer.start()
        _children()[0].suspend()
        job = {"uri": str(tmp_path), "stem": "step-00000001/rank-00000.1.1", "quantization": "none"}
        writer.submit({**job, "commit": None}, [], fork=True)
        _until(lambda: writer.answer() is not None)
        answer = writer.answer()
        assert answer is not None
        assert answer.lost
    finally:
        writer.close()


def test_a_save_waits_for_the_one_before_it(tmp_path: Path) -> None:
    model = Model()
    with checkpointer(str(tmp_path), options=BACKGROUND) as writer:
        for step in (1, 2, 3):
            model.train(step)
            save(writer, model, step, wait=False)
        assert [report.step for report in writer.poll()] == [1, 2]
        assert [report.step for report in writer.poll(wait=True)] == [3]


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    others = psutil.Process().children()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - no names wanted
    with checkpointer(str(tmp_path), options=BACKGROUND) as writer:
        for step in (1, 2):
            save(writer, trained(step), step)
        save(writer, trained(3), 3, wait=False)
    assert psutil.Process().children() == others
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208 - as above


_ENDLESS = """
import sys
from tests.trainer.support_layers import BACKGROUND, Model, checkpointer, save
from pathlib import Path

model = Model()
with checkpointer(sys.argv[1], options=BACKGROUND) as writer:
    newest = writer.newest()
    if newest is not None:
        model.spoil()
        writer.load(newest, model.state, initial=model)
    Path(sys.argv[2]).write_text("ready")
    step = newest or 0
    while True:
        step += 1
        model.train(step)
        save(writer, model, step, wait=False)
        writer.poll()
"""


def _newest_commit(folder: Path) -> int:
    return max(
        (int(commit.parent.name.removeprefix("step-")) for commit in folder.glob("step-*/commit-*")),
        default=0,
    )


def test_a_kill_at_any_moment_leaves_the_newest_checkpoint_whole_and_loses_no_step(tmp_path: Path) -> None:
    """Trainers are killed, and so are their writers, at random moments; each continues from the last."""
    moments = random.Random(1)  # noqa: S311 - no secret
    folder = tmp_path / "checkpoints"
    newest = 0
    for number in range(ROUNDS):
        ready = tmp_path / f"ready-{number}"
        process = subprocess.Popen([sys.executable, "-c", _ENDLESS, str(folder), str(ready)])
        try:
            _until(ready.exists)
            if number % 3:  # of every three kills one may come before the first commit
                _until(lambda: _newest_commit(folder) > newest)  # noqa: B023 - called at once
            time.sleep(moments.uniform(0.0, 1.0))
            if number % 2:
                for child in psutil.Process(process.pid).children():
                    with suppress(psutil.NoSuchProcess):  # some live for an instant
                        child.kill()
                time.sleep(moments.uniform(0.0, 0.5))
        finally:
            process.kill()
            process.wait()
        with checkpointer(str(folder), options=INCREMENTAL) as writer:
            found = writer.newest() or 0
            assert found >= newest + (1 if number % 3 else 0)
            assert found == 0 or same(load(writer, found), trained(found)), found
            newest = found


def test_a_checkpointer_of_a_rank_alone_needs_no_group(tmp_path: Path) -> None:
    with Checkpointer(str(tmp_path), keep=1, rank=ALONE.rank, world_size=1) as writer:
        save(writer, trained(1), 1)
        assert writer.steps() == (1,)
