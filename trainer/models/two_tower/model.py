"""Two towers: one MLP makes the vector of a user, another one that of an item; their product is the score.

Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations". A softmax
over the items of all positive rows of the step, of all ranks, finds a positive row's item. Its scores are
corrected by how often each item is among them (log Q). Q is counted in the training rows, not estimated.
Rows with the label 0 are not trained on.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.base.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer.models.protocol import ModelInputs, WholeStep


class Tower(nn.Sequential):
    """An MLP to a vector of length 1: [B, width] -> [B, sizes[-1]]."""

    def __init__(self, width: int, sizes: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise([width, *sizes]):
            layers += [nn.Linear(wide, narrow), nn.ReLU()]
        super().__init__(*layers[:-1])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the vectors."""
        return functional.normalize(super().forward(inputs), dim=1)


class TwoTower(nn.Module):
    """Returns the user's vector and the item's, side by side."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.item = inputs.item
        self.users = [name for name in inputs.sparse if name not in self.item]
        self.temperature = inputs.temperature
        width = sum(inputs.sparse[name] for name in self.item)
        self.item_tower = Tower(width, inputs.hidden)
        self.user_tower = Tower(inputs.width - width, inputs.hidden)
        self._log_q: Tensor | None = None  # of each item's id

    def learn_counts(self, counts: Tensor) -> None:
        """Take the numbers of positive training rows of each item's id."""
        shares = counts.double().clamp_min(1) / counts.sum().clamp_min(1)
        self._log_q = shares.log().float()

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return both vectors [B, 2 * width]."""
        users = self.user_tower(torch.cat([dense, *(vectors[name] for name in self.users)], dim=1))
        items = self.item_tower(torch.cat([vectors[name] for name in self.item], dim=1))
        return torch.cat([users, items], dim=1)

    def towers(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return the vectors of users and of items."""
        users, items = outputs.chunk(2, dim=1)
        return users, items

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the score of each sample's pair."""
        users, items = self.towers(outputs)
        return (users * items).sum(dim=1) / self.temperature

    def batch_loss(self, outputs: Tensor, labels: Tensor, step: WholeStep) -> Tensor:
        """Return each sample's cross-entropy; the mean over the step is that of the positive ones."""
        users, own_items = self.towers(outputs)
        own_ids = step.ids(self.item[0])
        items, ids, every_label = step.gather(own_items), step.gather(own_ids), step.gather(labels)
        scores = users.float() @ items.float().T / self.temperature
        if self._log_q is not None:
            self._log_q = self._log_q.to(scores.device)
            scores = scores - self._log_q[ids]
        places = torch.arange(len(users), device=scores.device)
        right = step.first + places
        others = (every_label != 1)[None] | (own_ids[:, None] == ids[None])  # no negatives: equal items
        others[places, right] = False
        losses = functional.cross_entropy(scores.masked_fill(others, -math.inf), right, reduction="none")
        share = len(items) / every_label.sum().clamp_min(1)
        return losses * labels * share


def build(inputs: ModelInputs) -> TwoTower:
    """Return a new model; ConfigError if there is no item, or nothing but the item, or no layer."""
    if not inputs.item:
        raise ConfigError(
            "model two_tower needs to know which features are the item's; add `item: [item_id]` to the "
            "dataset's feature schema, and prepare it again"
        )
    if not inputs.dense and len(inputs.item) == len(inputs.sparse):
        raise ConfigError("model two_tower has no feature of the user: `item` names all of the schema")
    if not inputs.hidden:
        raise ConfigError(
            "over_arch_layer_sizes is 1, but two_tower needs a layer before it, whose width is that of its "
            "vectors: take 64,1"
        )
    return TwoTower(inputs)
