"""The places of the dense part's inputs in an earlier model with other features.

The first layers of a DLRM have a column for each dense feature, for each pair of vectors, or for each value
of a vector. A column stays with its features when others are added, dropped or reordered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trainer.base.config import DLRM_MODELS

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from torch import Tensor

    from trainer.models.model import ModelShape


def places_of_inputs(old: ModelShape, new: ModelShape) -> dict[str, dict[int, Tensor]] | None:
    """Return where the inputs of the new layers were, by parameter and dimension: int64, -1 for new ones.

    None: the inputs are the same, or the model's layers are not known to read features in some order.
    """
    if new.model not in DLRM_MODELS or old.model != new.model or old.interaction != new.interaction:
        return None
    if old.dense_names == new.dense_names and old.features == new.features:
        return None
    if old.embedding_dim != new.embedding_dim:
        return None
    inner = _places(_inner(old), _inner(new))
    return {
        "bottom.layers.0.weight": {1: _places(old.dense_names, new.dense_names)},
        "top.layers.0.weight": {1: inner},
        **{f"crosses.narrow.{layer}.weight": {1: inner} for layer in range(new.dcn_num_layers)},
        **{
            f"crosses.widen.{layer}.{part}": {0: inner}
            for layer in range(new.dcn_num_layers)
            for part in ("weight", "bias")
        },
    }


def _inner(shape: ModelShape) -> list[Hashable]:
    """Return a name for each value that enters the top MLP."""
    bottom: list[Hashable] = [("", place) for place in range(shape.embedding_dim)]
    if shape.interaction == "dcn":
        return bottom + [(name, place) for name in shape.features for place in range(shape.embedding_dim)]
    vectors = ["", *shape.features]
    return bottom + [
        frozenset((first, second)) for number, first in enumerate(vectors) for second in vectors[number + 1 :]
    ]


def _places(old: Sequence[Hashable], new: Sequence[Hashable]) -> Tensor:
    known = {name: place for place, name in enumerate(old)}
    return torch.tensor([known.get(name, -1) for name in new], dtype=torch.int64)
