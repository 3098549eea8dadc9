"""The model of a checkpoint as its export has it, read some rows at a time."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from trainer.base.entry import Entry, TensorShard
from trainer.checkpoint.load.reading import open_committed
from trainer.checkpoint.vocabulary import kept_in
from trainer.data.encoding import of_model
from trainer.models.model import make_model
from trainer.publishing.layers import SomeLayers
from trainer.serving.publication.format import PRECISIONS
from trainer.serving.scorer import TrainedModel, check_quantization, model_of
from trainer.tables.tables import quantize_rows
from trainer.warm.source import CheckpointedModel

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    from torch import Tensor

    from trainer.checkpoint.format.commit import Commit
    from trainer.checkpoint.store.base import Store

    Array = npt.NDArray[Any]

_BLOCK_BYTES = 64 << 20  # of weights in memory at a time
_DRAWN_ROWS = 16_384  # an initial state may be drawn in blocks of so many


class CommittedModel:
    """A checkpoint's model in one precision.

    Attributes:
        described: the model without tables, with its dense part.
        sizes: of each array, by its name in a publication.
    """

    def __init__(self, store: Store, commit: Commit, precision: str) -> None:
        self.store, self.commit, self._kind = store, commit, PRECISIONS[precision]
        self.place = f"{store.uri} at step {commit.step}"
        extra = commit.extra
        config, shape = model_of(extra, self.place)
        check_quantization(shape, self._kind)
        encoding = of_model(extra, self.place)
        dense = {
            name: parameter.detach()
            for name, parameter in make_model(config, shape, torch.device("cpu")).dense.named_parameters()
        }
        SomeLayers(store, commit, commit.layers[-1:]).fill(
            {f"dense/{name}": _whole(value) for name, value in dense.items()}
        )
        self.described = TrainedModel(
            config=config,
            shape=shape,
            step=commit.step,
            quantization=self._kind,
            tables={},
            dense=dense,
            managed={},
            vocabulary=None if encoding is None else kept_in(store, encoding),
        )
        sizes = shape.num_embeddings
        self.sizes: dict[str, tuple[int, ...]] = {
            f"tables/{name}": (rows, shape.dim(name)) for name, rows in sizes.items()
        }
        self.sizes |= {f"managed/{name}": (sizes[name],) for name in shape.managed}

    def encode(self, name: str, values: Tensor) -> Array:
        """Return rows as the publication has them."""
        if name.startswith("tables/"):
            values = values.float()
            if self._kind != "none":
                values = quantize_rows(values, self._kind)
        array: Array = values.contiguous().numpy()
        return array

    def kind_of(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return the type and the shape of an array."""
        sizes = self.sizes[name]
        like = torch.zeros(1, *sizes[1:], dtype=torch.int64 if name.startswith("managed/") else torch.float32)
        row = self.encode(name, like)
        return row.dtype.str, (sizes[0], *row.shape[1:])

    def blocks(self, name: str) -> Iterator[tuple[int, Array]]:
        """Yield all rows of an array in blocks, each with the number of its first row."""
        kind, table = name.split("/")
        rows, *width = self.sizes[name]
        if kind == "managed":
            yield 0, self.encode(name, self._entire.whole(f"managed/{table}/ids"))
            return
        step = max(_BLOCK_BYTES // (4 * width[0]) // _DRAWN_ROWS, 1) * _DRAWN_ROWS
        for start, stop in pairwise([*range(0, rows, step), rows]):
            yield start, self.encode(name, self._entire.rows(table, "weight", start, stop))

    @cached_property
    def _entire(self) -> CheckpointedModel:
        """The checkpoint with all of its layers, verified."""
        return CheckpointedModel(open_committed(self.store.uri, self.commit.step))


def canonical(name: str) -> str:
    """Return the name in checkpoints of an array of a publication."""
    return f"{name}/ids" if name.startswith("managed/") else f"{name}/weight"


def _whole(tensor: Tensor) -> Entry:
    shape = tuple(tensor.shape)
    return Entry(shape=shape, shards=(TensorShard(tensor, (0,) * len(shape)),), replicated=True)
