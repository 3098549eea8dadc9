"""A small model whose rows change a few at a time, with stamps as in training."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tests.trainer.support_ranks import Place
from tests.trainer.support_state import cut, global_tensors
from trainer.base.row_stamps import Intervals, RowStamps
from trainer.checkpoint import Checkpointer, Entry
from trainer.checkpoint.save.saves import SavingOptions

if TYPE_CHECKING:
    from trainer.checkpoint import State

ALONE = Place(0, 1, None)
FINGERPRINT = {"dataset": "abc"}
INCREMENTAL = SavingOptions(mode="incremental", chain=3)
BACKGROUND = SavingOptions(mode="incremental", chain=3, in_background=True)


class Model:
    """Every rank changes the same rows of the whole tensors, and holds its cut of them."""

    identity = "the initial state of a test"

    def __init__(self, place: Place = ALONE) -> None:
        self.tensors = global_tensors(0)
        self.intervals = Intervals()
        self._stamps: dict[str, RowStamps] = {}
        self.state: State = {
            name: self._stamped(name, entry) if name.startswith("tables/") else entry
            for name, entry in cut(place, self.tensors).items()
        }

    def train(self, step: int, rows: int = 9) -> None:
        """Change some rows of every table, and the dense part."""
        generator = torch.Generator().manual_seed(step)
        for table in ("a", "b", "c"):
            size = len(self.tensors[f"tables/{table}/weight"])
            picked = torch.randint(size, (rows,), generator=generator).unique()
            for name, tensor in self.tensors.items():
                if name.startswith(f"tables/{table}/"):
                    added = torch.rand(len(picked), *tensor.shape[1:], generator=generator)
                    tensor[picked] += added.to(tensor.dtype)
            entry = self.state[f"tables/{table}/weight"]
            for shard in entry.shards:
                here = picked - shard.offsets[0]
                mine = here[(here >= 0) & (here < len(shard.tensor))]
                self._stamps[table].touch(mine)
        self.tensors["dense/kernel"] += torch.rand(3, 4, 5, generator=generator)
        self.tensors["dense/step"].fill_(step)

    def known_as(self, identity: str) -> Model | None:
        """See Initial."""
        return self if identity == self.identity else None

    def make(self) -> None:
        """See Initial."""
        for name, tensor in global_tensors(0).items():
            if name.startswith("tables/"):
                self.tensors[name].copy_(tensor)

    def spoil(self) -> None:
        """Set all values to ones that no checkpoint contains."""
        for tensor in self.tensors.values():
            tensor.fill_(77)

    def _stamped(self, name: str, entry: Entry) -> Entry:
        table = name.split("/")[1]
        shards = []
        for shard in entry.shards:
            if table not in self._stamps:
                values = self.intervals.add(len(shard.tensor), torch.device("cpu"))
                self._stamps[table] = RowStamps(values, self.intervals)
            shards.append(replace(shard, stamps=self._stamps[table]))
        return replace(entry, shards=tuple(shards))


def trained(steps: int, place: Place = ALONE) -> Model:
    """A model after so many steps, never saved nor loaded."""
    model = Model(place)
    for step in range(1, steps + 1):
        model.train(step)
    return model


def same(model: Model, other: Model) -> bool:
    """Whether two models hold the same bits here."""
    return all(
        torch.equal(mine.tensor, theirs.tensor)
        for name, entry in model.state.items()
        for mine, theirs in zip(entry.shards, other.state[name].shards, strict=True)
    )


def checkpointer(
    directory: str, place: Place = ALONE, *, keep: int = 2, options: SavingOptions
) -> Checkpointer:
    """Of one rank."""
    return Checkpointer(
        directory, keep=keep, rank=place.rank, world_size=place.world_size, group=place.group, options=options
    )


def save(writer: Checkpointer, model: Model, step: int, *, wait: bool = True) -> None:
    """Save like the trainer does."""
    writer.save(step, model.state, {"step": step}, FINGERPRINT, initial=model, wait=wait)


def die_at(event_number: int) -> None:
    """End this process, as SIGKILL would, before its n-th change of the file system."""
    changes = {"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link"}
    seen = 0

    def hook(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal seen
        seen += event in changes
        if seen >= event_number:
            os._exit(9)

    sys.addaudithook(hook)


def load(writer: Checkpointer, step: int, place: Place = ALONE) -> Model:
    """Return a model loaded from a checkpoint, into memory with other values."""
    model = Model(place)
    model.spoil()
    assert writer.load(step, model.state, FINGERPRINT, initial=model) == {"step": step}
    return model
