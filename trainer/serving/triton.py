"""A model repository for the PyTorch backend of Triton: TorchScript with the tables, and its configuration.

FOLDER/MODEL/config.pbtxt    names, types and shapes; dynamic batching
FOLDER/MODEL/1/model.pt      the whole model, tables included

The backend finds inputs by the number at the end of their names, `city__1`. Triton joins requests whose
inputs have equal shapes, so that lists have a fixed length here, and -1 is behind the last id.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from cloudrec_contract.features import parse
from trainer.base.errors import ConfigError
from trainer.serving.graph import GraphModel

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainer.serving.scorer import TrainedModel

MOST_IDS = 64  # of a list that has no limit
_MOST_BATCH = 4096
_QUEUE_US = 500  # that a request waits for others


class _Port(NamedTuple):
    """An input or an output."""

    name: str
    kind: str  # TYPE_FP32 or TYPE_INT64
    width: int


class FlatModel(nn.Module):
    """The model with its tables, from tensors [samples, width] in a fixed order to the scores."""

    def __init__(self, trained: TrainedModel, lengths: Mapping[str, int]) -> None:
        """`lengths` are the most ids of each feature."""
        super().__init__()
        self.graph = GraphModel(trained)
        self.features = tuple(lengths)
        self.has_dense = trained.shape.num_dense > 0
        self.is_weighted = bool(trained.shape.weighted)
        self.tables = nn.ParameterDict(
            {name: nn.Parameter(each, requires_grad=False) for name, each in trained.tables.items()}
        )

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the scores [samples, 1] or [samples, tasks]."""
        count = len(self.features)
        first = int(self.has_dense)
        dense = inputs[0] if self.has_dense else inputs[0].new_zeros(inputs[0].shape[0], 0).float()
        ids: dict[str, Tensor] = {}
        offsets: dict[str, Tensor] = {}
        weights: dict[str, Tensor] = {}
        for place, feature in enumerate(self.features):
            padded = inputs[first + place]
            given = padded >= 0
            ids[feature] = padded[given]
            offsets[feature] = functional.pad(given.sum(dim=1).cumsum(0), (1, 0))
            if self.is_weighted:
                weights[feature] = inputs[first + count + place][given]
        tables = dict(self.tables.items())
        found = self.graph(dense, ids, offsets, tables, weights if self.is_weighted else None)
        scores: Tensor = found["scores"]
        return scores.view(-1, 1) if scores.dim() == 1 else scores


def write_repository(trained: TrainedModel, folder: Path) -> Path:
    """Write a model's folder into a model repository, and return it.

    Raises:
        ConfigError: the folder exists, or ids get their rows outside of the graph.
    """
    if trained.managed:
        raise ConfigError(
            f"triton is {folder}, but the ids of {', '.join(trained.managed)} are hashes whose rows are "
            "looked up outside of torch (managed_collision); score with `cloudrec serve`"
        )
    if trained.quantization != "none":
        raise ConfigError(
            f"triton is {folder} and quantize {trained.quantization}, but TorchScript cannot read quantised "
            "rows; leave quantize out for the repository"
        )
    place = folder / trained.shape.model.replace(":", "_")  # boundary: checked by the configuration
    if place.exists():
        raise ConfigError(f"triton {place}: exists; give a new folder, or remove it")
    lengths = _lengths(trained)
    inputs = _inputs(trained, lengths)
    model = FlatModel(trained, lengths).eval().requires_grad_(False)  # noqa: FBT003 - torch's
    example = tuple(
        torch.zeros(3, each.width, dtype=torch.float32 if each.kind == "TYPE_FP32" else torch.int64)
        for each in inputs
    )
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model, example, check_trace=False)
    (place / "1").mkdir(parents=True)
    traced.save(str(place / "1" / "model.pt"))
    outputs = [_Port("scores__0", "TYPE_FP32", max(1, len(trained.shape.tasks)))]
    (place / "config.pbtxt").write_text(_text(place.name, inputs, outputs), encoding="utf-8")
    return place


def _lengths(trained: TrainedModel) -> dict[str, int]:
    shape = trained.shape
    known = {} if trained.vocabulary is None else trained.vocabulary.encoding.document.get("features")
    lists = {each.name: each.max_length or MOST_IDS for each in parse(known).lists} if known else {}
    return {feature: lists.get(feature, shape.places.get(feature, 1)) for feature in shape.features}


def _inputs(trained: TrainedModel, lengths: Mapping[str, int]) -> list[_Port]:
    found = [("dense", "TYPE_FP32", trained.shape.num_dense)] if trained.shape.num_dense else []
    found += [(feature, "TYPE_INT64", length) for feature, length in lengths.items()]
    if trained.shape.weighted:
        found += [(f"{feature}_weights", "TYPE_FP32", length) for feature, length in lengths.items()]
    return [_Port(f"{name}__{number}", kind, width) for number, (name, kind, width) in enumerate(found)]


def _text(name: str, inputs: list[_Port], outputs: list[_Port]) -> str:
    lines = [
        f'name: "{name}"',
        'platform: "pytorch_libtorch"',
        f"max_batch_size: {_MOST_BATCH}",
        *_ports("input", inputs),
        *_ports("output", outputs),
        "dynamic_batching {",
        f"  max_queue_delay_microseconds: {_QUEUE_US}",
        "}",
        "instance_group [ { kind: KIND_CPU count: 1 } ]",
    ]
    return "\n".join(lines) + "\n"


def _ports(what: str, ports: list[_Port]) -> list[str]:
    entries = [f'  {{ name: "{each.name}" data_type: {each.kind} dims: [ {each.width} ] }}' for each in ports]
    return [f"{what} [", ",\n".join(entries), "]"]
