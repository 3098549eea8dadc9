"""Two towers: one MLP makes the vector of a user, another one that of an item; their product is the score.

Yi et al. 2019, "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations". A softmax
over the items of all positive rows of the step, of all ranks, finds a positive row's item. Its scores are
corrected by how often each item is among them (log Q). Q is counted in the training rows, not estimated.
Rows with the label 0 are not trained on.

Items drawn with equal chances may be added or take the place of the rows' items (Yang et al. 2020, "Mixed
Negative Sampling for Learning Two-tower Neural Networks in Recommendations"). Q is then the chance of an
item in the mixture; with drawn items alone it is the same for all, so that it changes no loss.
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

    from trainer.models.protocol import DrawnNegatives, ModelInputs, WholeStep


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
        self.negatives = inputs.negatives
        width = sum(inputs.sparse[name] for name in self.item)
        self.item_tower = Tower(width, inputs.hidden)
        self.user_tower = Tower(inputs.width - width, inputs.hidden)
        self._log_q: Tensor | None = None  # of each item's id
        self._shares: Tensor | None = None  # of each item's id among the positive rows

    def learn_counts(self, counts: Tensor) -> None:
        """Take the numbers of positive training rows of each item's id."""
        total = counts.sum().clamp_min(1)
        self._log_q = (counts.double().clamp_min(1) / total).log().float()
        self._shares = counts.double() / total

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
        every_label = step.gather(labels)
        positives = every_label.sum()
        if self.negatives == "uniform" and step.drawn is not None:
            scores, right = self._against_drawn(users, own_items, own_ids, step.drawn)
        else:
            scores, right = self._against_rows(users, own_items, own_ids, every_label, step)
        losses = functional.cross_entropy(scores, right, reduction="none")
        return losses * labels * (len(every_label) / positives.clamp_min(1))

    def _against_rows(
        self, users: Tensor, own_items: Tensor, own_ids: Tensor, every_label: Tensor, step: WholeStep
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of the items of all rows, and of drawn ones, and the place of the right one."""
        items, ids = step.gather(own_items), step.gather(own_ids)
        is_positive = every_label == 1
        drawn = step.drawn if self.negatives == "mixed" else None
        if drawn is not None:
            items = torch.cat([items, drawn.gather(self.towers(drawn.outputs)[1])])
            ids = torch.cat([ids, drawn.ids])
            is_positive = functional.pad(is_positive, (0, len(drawn.ids)), value=True)
        scores = users.float() @ items.float().T / self.temperature
        if drawn is not None and self._shares is not None:
            scores = scores - self._log_mixture(ids, every_label.sum(), drawn)
        elif self._log_q is not None:
            self._log_q = self._log_q.to(scores.device)
            scores = scores - self._log_q[ids]
        places = torch.arange(len(users), device=scores.device)
        right = step.first + places
        others = ~is_positive[None] | (own_ids[:, None] == ids[None])  # no negatives: equal items
        others[places, right] = False
        return scores.masked_fill(others, -math.inf), right

    def _log_mixture(self, ids: Tensor, positives: Tensor, drawn: DrawnNegatives) -> Tensor:
        """Return the log of each id's chance among the positive rows' items and the drawn ones."""
        assert self._shares is not None  # noqa: S101 - for the type checker
        self._shares = self._shares.to(ids.device)
        rows, count = positives.double(), len(drawn.ids)
        chances = (rows * self._shares[ids] + count / drawn.among) / (rows + count)
        return chances.log().float()

    def _against_drawn(
        self, users: Tensor, own_items: Tensor, own_ids: Tensor, drawn: DrawnNegatives
    ) -> tuple[Tensor, Tensor]:
        """Return the scores of each row's item, and of the drawn ones, and the place of the right one."""
        items = drawn.gather(self.towers(drawn.outputs)[1])
        own = (users.float() * own_items.float()).sum(dim=1, keepdim=True)
        others = users.float() @ items.float().T
        others = others.masked_fill(own_ids[:, None] == drawn.ids[None], -math.inf)
        return torch.cat([own, others], dim=1) / self.temperature, torch.zeros_like(own_ids)


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
