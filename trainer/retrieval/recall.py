"""recall@k: how often the item of a positive row is among the k items that fit its user best."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from trainer.retrieval.items import Items

_PAIRS = 1 << 24  # scores at once


class RecallMeter:
    """Collects the users of positive rows, and ranks all items for each."""

    def __init__(self, items: Items, limits: Sequence[int]) -> None:
        self._items = items
        self._limits = limits
        self._users: list[Tensor] = []
        self._places: list[Tensor] = []

    def update(self, users: Tensor, ids: Tensor, labels: Tensor) -> None:
        """Add a batch: vectors [B, width], the ids of the rows' items [B], and labels [B]."""
        chosen = (labels == 1).cpu()
        self._users.append(users.detach().float().cpu()[chosen])
        self._places.append(self._items.places[ids.cpu()[chosen]])

    def hits(self, vectors: Tensor) -> list[float]:
        """Return the rows with their item among the best k, for each k, and the number of rows.

        `vectors` are all items' [items, width]. Of equal scores, that of the right item counts as the last
        one. An item that the vocabulary does not know is not found.
        """
        found = [0.0] * len(self._limits)
        rows = 0
        for users, places in zip(self._users, self._places, strict=True):
            rows += len(users)
            known = places >= 0
            step = max(1, _PAIRS // max(len(vectors), 1))
            pairs = zip(users[known].split(step), places[known].split(step), strict=True)
            for some, right in pairs:
                scores = some @ vectors.T
                own = scores.gather(1, right[:, None])
                better = (scores >= own).sum(dim=1) - 1
                found = [
                    hits + float((better < limit).sum())
                    for hits, limit in zip(found, self._limits, strict=True)
                ]
        return [*found, float(rows)]


def named(limits: Sequence[int], sums: Sequence[float]) -> dict[str, float | None]:
    """Return the recalls by name, from the sums of `hits` over all ranks; None without rows."""
    rows = sums[-1]
    return {
        f"recall_at_{limit}": hits / rows if rows else None for limit, hits in zip(limits, sums, strict=False)
    }


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return the vectors of several batches, float32 on the CPU."""
    return torch.cat([each.detach().float().cpu() for each in parts]) if parts else torch.empty(0, 0)
