"""A device beside training, in memory of the CPU, and a model whose tables are on it.

It behaves like CUDA where a snapshot can go wrong:

- Work that is queued on a stream is done in order, and at any time until it is waited for (CUDA C++
  Programming Guide, "Asynchronous Concurrent Execution"; torch.cuda.Stream, torch.cuda.Event). Here it is
  done as late as that allows, at once, or at random: `eager` is the share of calls after which all is done.
- A pinned buffer has other bytes until the event behind the copy was waited for ("Page-Locked Host Memory").
  Here they are those of the chunk before, or GARBAGE.
- Streams know nothing of each other: the training's stream changes rows while the queue waits, unless
  `hold_training` (Stream.wait_stream) was called. Training is done at once here, so what is still queued then
  reads rows that were changed.
- What was queued without `follow_training` may read stamps and rows before the training that was queued
  earlier has changed them. Here `ask` refuses that.

Pinned memory and scratch memory are counted until nothing refers to them.
"""

from __future__ import annotations

import random
import threading
import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch

from trainer.base.row_stamps import Intervals, RowStamps
from trainer.checkpoint import Checkpointer, Entry, TensorShard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from torch import Tensor

    from trainer.checkpoint import State
    from trainer.checkpoint.save.device import SideDevice
    from trainer.checkpoint.save.saves import CheckpointReport, SavingOptions

T = TypeVar("T")
GARBAGE = 0xA5
SAVES = 5
LEAST_STEPS, MOST_STEPS = 12, 10_000  # of training while a save is in progress


@dataclass
class Counted:
    """Bytes in use now, and at most."""

    now: int = 0
    peak: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new(self, size: int) -> Tensor:
        """Memory that counts until it is freed; torch keeps the array of a tensor from numpy."""
        array = np.full(size, GARBAGE, np.uint8)
        with self._lock:
            self.now += size
            self.peak = max(self.peak, self.now)
        weakref.finalize(array, self._free, size)
        return torch.from_numpy(array)

    def _free(self, size: int) -> None:
        with self._lock:
            self.now -= size


class LateDevice:
    """See the module, and SideDevice."""

    def __init__(self, *, eager: float = 0.0, seed: int = 0) -> None:
        self.pinned = Counted()
        self.used = Counted()
        self.waits = 0  # for events
        self._eager = eager
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._held: set[int] = set()
        self._lock = threading.RLock()
        self._queue: list[tuple[int, Callable[[], None]]] = []
        self._count = 0
        self._trained = 0
        self._followed = 0

    def put(self, tensors: Iterable[Tensor]) -> None:
        """Declare tensors to be in this device's memory."""
        self._held |= {tensor.untyped_storage().data_ptr() for tensor in tensors}

    def trained(self) -> None:
        """Note that training has queued work."""
        self._trained += 1

    def holds(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._held

    def host_buffer(self, size: int) -> Tensor:
        return self.pinned.new(size)

    def scratch(self, size: int) -> Tensor:
        return self.used.new(size)

    def follow_training(self) -> None:
        self._followed = self._trained

    def hold_training(self) -> None:
        self._do(self._count)

    def enqueue(self, work: Callable[[], None]) -> Event:
        with self._lock:
            self._count += 1
            self._queue.append((self._count, work))
            event = Event(self, self._count)
            if self._random.random() < self._eager:
                self._do(self._count)
            return event

    def ask(self, work: Callable[[], T]) -> T:
        assert self._followed == self._trained, "reads while earlier training is queued"
        with self._lock:
            self._do(self._count)
            return work()

    def reach(self, number: int) -> None:
        """Do what was queued up to an event."""
        self.waits += 1
        self._do(number)

    def _do(self, number: int) -> None:
        with self._lock:
            while self._queue and self._queue[0][0] <= number:
                self._queue.pop(0)[1]()


@dataclass(frozen=True)
class Event:
    """The end of queued work."""

    device: LateDevice
    number: int

    def wait(self) -> None:
        self.device.reach(self.number)


class UnorderedDevice(LateDevice):
    """Training does not wait for what is queued."""

    def hold_training(self) -> None:
        pass


class ImpatientDevice(LateDevice):
    """No one waits for the end of a copy."""

    def reach(self, number: int) -> None:
        del number


class DeviceModel:
    """Two tables of one kernel with states, another kernel's, a dense part, and a map in host memory."""

    identity = "the initial state of a device's test"

    def __init__(
        self, device: LateDevice | None, *, rows: int = 3000, seed: int = 0, place: str = "cpu"
    ) -> None:
        """`place` is torch's name of where the tables are, which is a stand-in's memory by default."""
        self.device = device
        self._place = torch.device(place)
        self.rows = {"a": rows, "b": rows // 3, "c": rows // 2}
        self.intervals = Intervals()
        self._random = np.random.default_rng(seed)
        self._kernels = {
            name: self.intervals.add(size, self._place)
            for name, size in (("ab", self.rows["a"] + self.rows["b"]), ("c", self.rows["c"]))
        }
        ab, size = self._kernels["ab"], self.rows["a"]
        stamps = {
            "a": RowStamps(ab[:size], self.intervals, ab, 0),
            "b": RowStamps(ab[size:], self.intervals, ab, size),
            "c": RowStamps(self._kernels["c"], self.intervals),
        }
        self._whole = {name: RowStamps(values, self.intervals) for name, values in self._kernels.items()}
        host = RowStamps(self.intervals.add(50, torch.device("cpu")), self.intervals)
        sizes = {
            "tables/a/weight": (self.rows["a"], 16),
            "tables/a/sums": (self.rows["a"],),
            "tables/b/weight": (self.rows["b"], 8),
            "tables/b/sums": (self.rows["b"], 8),
            "tables/c/weight": (self.rows["c"], 4),
            "dense/kernel": (40, 30),
        }
        self.tensors: dict[str, Tensor] = {
            name: torch.empty(
                size, device=self._place, dtype=torch.bfloat16 if name == "tables/b/weight" else None
            )
            for name, size in sizes.items()
        }
        self.tensors["managed/a/ids"] = torch.empty(50, dtype=torch.int64)
        self._host_stamps = host
        self.make()
        self.state: State = {
            name: Entry(
                tuple(tensor.shape),
                (TensorShard(tensor, (0,) * tensor.dim(), {**stamps, "managed": host}.get(_table(name))),),
            )
            for name, tensor in self.tensors.items()
        }
        if device is not None:
            device.put(tensor for name, tensor in self.tensors.items() if not name.startswith("managed/"))

    def known_as(self, identity: str) -> DeviceModel | None:
        """See Initial."""
        return self if identity == self.identity else None

    def make(self) -> None:
        """See Initial."""
        for name, tensor in self.tensors.items():
            generator = torch.Generator(tensor.device).manual_seed(5)
            tensor.random_(0, 200, generator=generator)
            if name == "dense/kernel":
                tensor.zero_()

    def train(self, touched: int = 40) -> None:
        """One step: each kernel first stamps the rows that it looks up, and changes them later."""
        for kernel, values in self._kernels.items():
            rows = torch.from_numpy(self._random.integers(0, len(values), touched)).to(self._place)
            self._whole[kernel].touch(rows)
            for table in kernel:
                first = self.rows["a"] if table == "b" else 0
                own = rows[(rows >= first) & (rows < first + self.rows[table])] - first
                for name, tensor in self.tensors.items():
                    if _table(name) == table:
                        changed = torch.rand(len(own), *tensor.shape[1:], device=self._place)
                        tensor[own] = changed.to(tensor.dtype)
        self.tensors["dense/kernel"] += 1
        ids = torch.from_numpy(self._random.integers(0, 50, 3))
        self._host_stamps.touch(ids)
        self.tensors["managed/a/ids"][ids] += 7
        if self.device is not None:
            self.device.trained()

    def copy(self) -> dict[str, Tensor]:
        """All values now."""
        return {name: tensor.clone() for name, tensor in self.tensors.items()}

    def spoil(self) -> None:
        """Set all values to ones that no checkpoint contains."""
        for tensor in self.tensors.values():
            tensor.fill_(77)


def save_while_training(
    folder: Path,
    model: DeviceModel,
    options: SavingOptions,
    *,
    device: SideDevice | None = None,
) -> tuple[list[CheckpointReport], list[dict[str, Tensor]]]:
    """Save in the middle of training; the reports, and the values at each cut.

    `device` is where the tables are; by default, the GPU that the Checkpointer finds.
    """
    cuts, reports = [], []
    with Checkpointer(str(folder), keep=99, rank=0, world_size=1, options=options, device=device) as writer:
        for step in range(1, SAVES + 1):
            model.train()
            cuts.append(model.copy())
            report = writer.save(step, model.state, {}, {}, initial=model, wait=False)
            reports += [] if report is None else [report]
            for number in range(MOST_STEPS):
                if number >= LEAST_STEPS and not writer.is_saving:
                    break
                model.train()
                reports += writer.poll()
        reports += writer.poll(wait=True)
    return reports, cuts


def torn(folder: Path, cuts: list[dict[str, Tensor]], model: DeviceModel) -> list[tuple[int, str]]:
    """The steps and tensors that a checkpoint has otherwise than they were at its cut; spoils the model."""
    found = []
    with Checkpointer(str(folder), keep=99, rank=0, world_size=1) as writer:
        for step, cut in enumerate(cuts, 1):
            model.spoil()
            writer.load(step, model.state, initial=model)
            found += [
                (step, name) for name, tensor in model.tensors.items() if not torch.equal(tensor, cut[name])
            ]
    return found


def _table(name: str) -> str:
    kind, table, *_ = name.split("/")
    return table if kind == "tables" else kind
