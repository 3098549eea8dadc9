"""A snapshot of the state at a step boundary, streamed to a pipe while training continues.

A small number of touched rows is copied by several threads and sent by another thread. A larger amount is
sent by a forked child: the kernel copies a page when either process first writes to it, so the child sees
the memory as of the fork, and the loop waits for the fork only. A fork costs time for each page of the
process, and so does the first write to each page afterwards; therefore few rows are copied instead. The
child calls only numpy and os.write, because torch's threads do not exist in it. If the system refuses to
fork, and for tensors that a fork does not freeze (in shared memory), everything is copied. What the fork has
split into small pages is joined again after the child has ended. The tables of a
GPU are streamed (`table_stream`); what else it holds is small, and copied.

A forked child may hang before its first line: CPython (3.11, 3.12) takes the lock of its list of threads
there, and a thread that ended at that moment holds it forever. So the child reports that it runs; one that
does not is killed, and another is forked while the loop still waits.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch

from cloudrec_contract.readable import is_readable
from trainer.base.memory import HugePages
from trainer.checkpoint.format.frames import Group, TensorBlock, frames, send, touched_rows
from trainer.checkpoint.save.table_stream import StreamClosedError, is_streamed
from trainer.checkpoint.save.touched_bits import Touched, TouchedBits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from trainer.base.entry import State, TensorShard
    from trainer.base.row_stamps import Since
    from trainer.checkpoint.format.frames import Allocate, Array, Frame
    from trainer.checkpoint.save.device import SideDevice
    from trainer.checkpoint.save.table_stream import TableStream

_LOG = logging.getLogger(__name__)
_PR_SET_PDEATHSIG = 1
_THREADS = min(4, len(os.sched_getaffinity(0)))  # a copy waits for memory; more gain little
_FIRST_WORD_S = 2.0  # within which a forked child must report that it runs: 1,000 times what that takes
_FORKS = 3  # until everything is copied instead
_NUMPY_LACKS = {torch.bfloat16: torch.int16}

# Loaded before any fork: the loader's lock may be held by a thread that does not exist in the child.
_libc = ctypes.CDLL(None)


def find_touched(
    state: State, *, first_rank: bool, since: Since, device: SideDevice | None = None
) -> Touched:
    """Return the rows that this rank would write, by `id` of their RowStamps."""
    found: Touched = {}
    with ThreadPoolExecutor(_THREADS) as pool:
        for entry in state.values():
            for shard in entry.shards if first_rank or not entry.replicated else ():
                stamps = shard.stamps
                if stamps is not None and id(stamps) not in found:
                    after = stamps.intervals.after(since)
                    if is_streamed(shard, device):
                        found[id(stamps)] = TouchedBits.find(stamps.values, after)
                    else:
                        found[id(stamps)] = touched_rows(stamps.values.numpy(), after, pool)
    return found


def groups_of(
    state: State, *, first_rank: bool, touched: Touched | None, device: SideDevice | None = None
) -> list[Group]:
    """Return what this rank writes: tensors without stamps whole, of the others only the touched rows.

    With `touched` None, all tensors are whole. CPU tensors are not copied. A device's tables are left out.
    """
    by_stamps: dict[int, list[tuple[str, tuple[int, ...], TensorShard]]] = {}
    whole: list[Group] = []
    for name, entry in sorted(state.items()):
        for shard in entry.shards if first_rank or not entry.replicated else ():
            if is_streamed(shard, device):
                continue
            if shard.stamps is None or touched is None:
                is_copy = device is not None and device.holds(shard.tensor)
                array = as_array(shard.tensor.to("cpu", copy=True) if is_copy else shard.tensor)
                whole.append(Group((_block(name, entry.shape, shard, array),), picked=is_copy))
            else:
                by_stamps.setdefault(id(shard.stamps), []).append((name, entry.shape, shard))
    return whole + [_group(held, (touched or {})[key]) for key, held in by_stamps.items()]


def is_frozen_by_fork(state: State) -> bool:
    """Whether a forked child sees the state as of the fork."""
    tensors = [shard.tensor for entry in state.values() for shard in entry.shards]
    return all(tensor.device.type == "cpu" and not tensor.is_shared() for tensor in tensors)


def as_array(tensor: Tensor) -> Array:
    """Return a CPU tensor's memory as a numpy array."""
    tensor = tensor.detach()
    if tensor.dtype in _NUMPY_LACKS:
        tensor = tensor.view(_NUMPY_LACKS[tensor.dtype])
    return tensor.numpy()


class Sender:
    """Sends groups to a pipe, from a snapshot taken in the constructor; closes the descriptor.

    Then it sends a device's tables, if there are some, which it copies meanwhile.
    """

    def __init__(
        self,
        groups: list[Group],
        descriptor: int,
        *,
        fork: bool,
        allocate: Allocate = np.empty,
        tables: TableStream | None = None,
    ) -> None:
        self._child: int | None = None
        self._huge_pages: HugePages | None = None
        self._arrays = [block.array for group in groups for block in group.blocks] if fork else []
        if fork:
            with suppress(OSError):  # no memory for a process of this size: copy instead
                self._child = _fork_alive(groups, descriptor)
        if self._child is None:
            with ThreadPoolExecutor(_THREADS) as pool:
                copied = [group.copied(pool, allocate) for group in groups]
            sent = chain(frames(copied), () if tables is None else tables.frames())
            threading.Thread(target=_send_and_close, args=(sent, descriptor), daemon=True).start()
        else:
            os.close(descriptor)

    def close(self) -> None:
        """Kill the child, if there is one; the rest of the stream is not sent."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._reap(0)
        if self._huge_pages is not None:
            self._huge_pages.stop()  # before the next fork

    def reap(self) -> None:
        """Reap a child that has ended, so that it is no zombie, and join the pages that it split."""
        self._reap(os.WNOHANG)

    def _reap(self, options: int) -> None:
        if self._child is not None:
            with suppress(ChildProcessError):
                if os.waitpid(self._child, options)[0] == 0:
                    return
            self._child = None
            self._huge_pages = HugePages([(each.ctypes.data, each.nbytes) for each in self._arrays])


def _block(name: str, shape: tuple[int, ...], shard: TensorShard, array: Array) -> TensorBlock:
    kind = str(shard.tensor.dtype).removeprefix("torch.")
    return TensorBlock(name, kind, tuple(shape), tuple(shard.offsets), tuple(shard.tensor.shape), array)


def _group(held: list[tuple[str, tuple[int, ...], TensorShard]], rows: Array) -> Group:
    blocks = tuple(_block(name, shape, shard, as_array(shard.tensor)) for name, shape, shard in held)
    return Group(blocks, rows)


def _fork_alive(groups: list[Group], descriptor: int) -> int | None:
    """Return the process id of a running child; None if several hung. Only the parent returns."""
    for _ in range(_FORKS):
        reading, writing = os.pipe()
        try:
            child = _fork(groups, descriptor, writing)
            if is_readable(reading, timeout_s=_FIRST_WORD_S):
                return child
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        finally:
            os.close(reading)
            os.close(writing)
    return None


def _fork(groups: list[Group], descriptor: int, first_word: int) -> int:
    """Return the child's process id; only the parent returns."""
    with warnings.catch_warnings():
        # Python warns that locks of other threads may be held forever: the child takes none.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        _be_the_child(groups, descriptor, first_word)
    return child


def _be_the_child(groups: list[Group], descriptor: int, first_word: int) -> NoReturn:
    """Send the groups and exit; the child never outlives the trainer, and keeps none of its files open."""
    code = 1
    try:
        os.write(first_word, b".")
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        # An inherited descriptor would keep the checkpoint folder's flock, and peers' connections, after the
        # trainer's death.
        os.dup2(descriptor, 3)
        os.closerange(4, os.sysconf("SC_OPEN_MAX"))
        send(frames(groups), 3)
        code = 0
    finally:
        os._exit(code)


def _send_and_close(sent: Iterable[Frame], descriptor: int) -> None:
    try:
        # The writer died, which `BackgroundWriter.answer` reports, or the save was given up.
        with suppress(BrokenPipeError, StreamClosedError):
            send(sent, descriptor)
    except Exception:  # noqa: BLE001 - of a device; the writer then reports a stream without an end
        _LOG.exception("the state could not be copied for a checkpoint")
    finally:
        os.close(descriptor)
