"""Saves by torch.save and by torch.distributed.checkpoint, for comparison with those of a run."""

from __future__ import annotations

import shutil
import statistics
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from torch.distributed.checkpoint import FileSystemWriter, async_save
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

Kind: TypeAlias = Literal["process", "thread"]
KINDS: tuple[Kind, ...] = ("process", "thread")


@dataclass(frozen=True, slots=True)
class AsyncSaved:
    """One asynchronous save.

    Args:
        stall_s: until training may change the weights.
        write_s: until the checkpoint is on the disk.
        step_s: the median step meanwhile.
    """

    stall_s: float
    write_s: float
    step_s: float


class AsyncSaver:
    """Saves by torch.distributed.checkpoint.async_save, as its documentation advises on CPUs.

    The staged copy is kept from save to save, in memory that the process that writes shares, so that only
    the first save allocates it. Training waits for the copy: on CPUs there is no stream that could order it.

    Args:
        kind: what writes the copy: another process, or a thread of this one.
    """

    def __init__(self, kind: Kind) -> None:
        self._kind = AsyncCheckpointerType.PROCESS if kind == "process" else AsyncCheckpointerType.THREAD
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=False,
                use_shared_memory=kind == "process",
                use_async_staging=False,
                use_non_blocking_copy=False,
            )
        )

    def close(self) -> None:
        """Release the staged copy."""
        self._stager.close()

    def save(self, state: dict[str, Tensor], folder: Path, train: Callable[[], float]) -> AsyncSaved:
        """Save into a new folder, which is removed at the end, while `train` makes a step at a time."""
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its advice on pickles and on collectives of a world of one
            answer = async_save(
                dict(state),
                storage_writer=FileSystemWriter(folder),
                async_checkpointer_type=self._kind,
                async_stager=self._stager,
            )
            written = answer
            if isinstance(answer, AsyncSaveResponse):
                answer.staging_completion.result()
                written = answer.upload_completion
            stall_s = time.perf_counter() - began
            steps = [train()]
            while not written.done():
                steps.append(train())
            written.result()
        write_s = time.perf_counter() - began
        shutil.rmtree(folder)
        return AsyncSaved(stall_s, write_s, statistics.median(steps))


def save_plainly(state: dict[str, Tensor], path: Path) -> float:
    """Seconds that torch.save takes to the page cache."""
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    began = time.perf_counter()
    torch.save(state, path)
    return time.perf_counter() - began
