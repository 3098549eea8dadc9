"""A model's computation as a graph of torch.export, which torch runs without this package.

EXPORT/graph.pt2 holds everything behind the tables, with the dense weights, and how vectors are looked up and
pooled. The tables are inputs, since they are in the export's files already and may be many gigabytes:

    graph(dense, ids, offsets, tables) -> {"scores": [B] or [B, tasks]}

`ids` and `offsets` are dictionaries by feature: those of sample i are `ids[offsets[i]:offsets[i + 1]]`. If
ids have weights, those of each feature follow as the dictionary `weights`. `tables` has each table as the
export's file has it, quantised or not. Of a retrieval model, "user" and "item" are the vectors.
"""

from __future__ import annotations

import hashlib
import logging
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torchrec.sparse.jagged_tensor import KeyedTensor

from trainer.models.inputs import keys_of
from trainer.models.model import make_model
from trainer.serving.scorer import copy_dense
from trainer.tables.tables import BITS, SCALE_BYTES, row_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from trainer.models.model import ModelShape
    from trainer.serving.scorer import TrainedModel
    from trainer.tables.tables import Quantization

FILE_NAME = "graph.pt2"
_LOG = logging.getLogger(__name__)
_MOST_SHOWN = 300  # characters of an error
_SAMPLES, _IDS, _ROWS = 3, 5, 7  # of the example; 0 and 1 would be special


class GraphModel(nn.Module):
    """The whole model in operations that torch.export knows; its tables are inputs."""

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        self.shape = trained.shape
        self.quantization = trained.quantization
        model = make_model(trained.config, trained.shape, torch.device("cpu"))
        copy_dense(model, trained.dense)
        self.dense = model.dense

    def forward(
        self,
        dense: Tensor,
        ids: dict[str, Tensor],
        offsets: dict[str, Tensor],
        tables: dict[str, Tensor],
        weights: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the scores [B] or [B, tasks], and the vectors of users and items if there are some."""
        shape = self.shape
        keys: list[str] = []
        parts: list[Tensor] = []
        lengths: dict[str, Tensor] = {}
        for feature, table in shape.tables_of_features.items():
            look_up = _Table(tables[table], shape.dim(table), self.quantization)
            if feature in shape.places:
                places, count = look_up.places(ids[feature], offsets[feature], shape.places[feature])
                keys += keys_of([feature], shape.places)
                parts += places.unbind(dim=1)
                if feature in shape.sequences:
                    lengths[feature] = count
                continue
            own = None if weights is None else weights[feature]
            pooled = look_up.sums(ids[feature], offsets[feature], own)
            if feature in shape.mean_pooled:
                pooled = pooled / _divisors(offsets[feature], own)[:, None]
            keys.append(feature)
            parts.append(pooled)
        embedded = KeyedTensor(keys, [each.shape[1] for each in parts], torch.cat(parts, dim=1))
        outputs = self.dense(dense, embedded, lengths) if shape.sequences else self.dense(dense, embedded)
        kind = self.dense.kind
        found = {"scores": torch.sigmoid(kind.scores(outputs))}
        if kind.retrieval is not None:
            found["user"], found["item"] = kind.retrieval.towers(outputs)
        return found


class _Table:
    """Vectors of a table's rows."""

    def __init__(self, rows: Tensor, dim: int, kind: Quantization) -> None:
        self._rows, self._dim, self._kind = rows, dim, kind

    def vectors(self, ids: Tensor) -> Tensor:
        """Return the vectors [ids, dim]."""
        rows = self._rows[ids]
        if self._kind not in BITS:
            return rows.float()
        codes = rows[:, :-SCALE_BYTES]
        if BITS[self._kind] == 4:  # noqa: PLR2004 - two codes a byte, the first one in its lower half
            codes = torch.stack([codes & 15, codes >> 4], dim=2).flatten(1)
        scales = rows[:, -SCALE_BYTES:].contiguous().view(torch.float16).float()
        return codes[:, : self._dim].float() * scales[:, :1] + scales[:, 1:]

    def sums(self, ids: Tensor, offsets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the sums of the vectors of each sample [B, dim], weighted or not."""
        rows, places = self._rows, ids
        if self._kind != "none":
            rows, places = self.vectors(ids), torch.arange(ids.shape[0])
        return functional.embedding_bag(
            places, rows, offsets, mode="sum", include_last_offset=True, per_sample_weights=weights
        )

    def places(self, ids: Tensor, offsets: Tensor, most: int) -> tuple[Tensor, Tensor]:
        """Return the vectors of the newest ids [B, most, dim], the oldest first, and their numbers [B]."""
        count = offsets.diff().clamp_max(most)
        places = torch.arange(most)
        taken = places < count[:, None]
        first = (offsets[1:] - count)[:, None]
        padded = torch.cat([ids, ids.new_zeros(1)])  # for a batch without any
        chosen = padded[torch.where(taken, first + places, 0)]
        vectors = self.vectors(chosen.flatten()).view(-1, most, self._dim)
        return vectors * taken[:, :, None], count


def _divisors(offsets: Tensor, weights: Tensor | None) -> Tensor:
    counts = offsets.diff()
    if weights is None:
        return counts.clamp_min(1)
    rows = torch.arange(counts.shape[0]).repeat_interleave(counts, output_size=weights.shape[0])
    sums = torch.zeros(counts.shape[0]).index_add(0, rows, weights)
    return torch.where(sums > 0, sums, 1.0)


def write_graph(trained: TrainedModel, folder: Path) -> dict[str, Any]:
    """Write the graph into an export's folder; return its description, or why there is none."""
    if trained.managed:
        names = ", ".join(trained.managed)
        return {
            "file": None,
            "reason": f"the ids of {names} are hashes whose rows are looked up outside of torch "
            "(managed_collision); score with `cloudrec serve` or `python -m trainer.predict`",
        }
    try:
        program, vectors = _traced(trained)
    except Exception as error:  # noqa: BLE001 - whatever a user's model does that a graph cannot have
        text = " ".join(str(error).split())[:_MOST_SHOWN]
        reason = f"torch.export cannot follow the model: {type(error).__name__}: {text}"
        _LOG.warning("the export has no graph: %s", reason)
        return {"file": None, "reason": reason}
    path = folder / FILE_NAME  # boundary: its own name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, path)
    data = path.read_bytes()
    return {
        "file": FILE_NAME,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "torch": torch.__version__,
        **describe(trained.shape, trained.quantization, vectors=vectors),
    }


def describe(shape: ModelShape, quantization: Quantization, *, vectors: int | None) -> dict[str, Any]:
    """Return the names, types and shapes of a graph's inputs and outputs, as plain values; -1 varies.

    `vectors` is the width of the vectors of users and items; None if the model has none.
    """
    inputs = [_one("dense", "float32", [-1, shape.num_dense])]
    inputs += [_one(f"ids.{feature}", "int64", [-1]) for feature in shape.features]
    inputs += [_one(f"offsets.{feature}", "int64", [-1]) for feature in shape.features]
    kind = {"none": "float32", "fp16": "float16"}.get(quantization, "uint8")
    for table, rows in shape.num_embeddings.items():
        width = row_bytes(shape.dim(table), quantization) if quantization in BITS else shape.dim(table)
        entry = _one(f"tables.{table}", kind, [rows, width])
        inputs.append({**entry, "file": f"tables/{table}.npy"})
    if shape.weighted:
        inputs += [_one(f"weights.{feature}", "float32", [-1]) for feature in shape.features]
    outputs = [_one("scores", "float32", [-1, len(shape.tasks)] if shape.tasks else [-1])]
    if vectors is not None:
        outputs += [_one(name, "float32", [-1, vectors]) for name in ("user", "item")]
    return {"inputs": inputs, "outputs": outputs}


def _one(name: str, kind: str, shape: list[int]) -> dict[str, Any]:
    return {"name": name, "type": kind, "shape": shape}


def _traced(trained: TrainedModel) -> tuple[Any, int | None]:
    """Return the program, and the width of the vectors of users and items."""
    shape = trained.shape
    model = GraphModel(trained).eval()
    ids = {name: torch.zeros(_IDS + place, dtype=torch.int64) for place, name in enumerate(shape.features)}
    ends = torch.tensor([0, 1, 3, _IDS])
    offsets = {name: ends.clone() for name in shape.features}
    for place, name in enumerate(shape.features):
        offsets[name][-1] = _IDS + place
    few = {name: each.new_zeros(_ROWS, each.shape[1]) for name, each in trained.tables.items()}
    example: list[Any] = [torch.zeros(_SAMPLES, shape.num_dense), ids, offsets, few]
    samples = torch.export.Dim("samples", min=1)
    sizes = {name: {0: torch.export.Dim.DYNAMIC} for name in shape.features}
    dynamic: dict[str, Any] = {
        "dense": {0: samples},
        "ids": sizes,
        "offsets": {name: {0: samples + 1} for name in shape.features},
        "tables": {name: {0: torch.export.Dim.DYNAMIC} for name in trained.tables},
    }
    if shape.weighted:
        example.append({name: torch.ones(len(each)) for name, each in ids.items()})
        dynamic["weights"] = dict(sizes)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model, tuple(example), dynamic_shapes=dynamic, strict=False)
        vectors = model(*example).get("user")
    program.example_inputs = None  # the file would have them
    return program, None if vectors is None else vectors.shape[1]
