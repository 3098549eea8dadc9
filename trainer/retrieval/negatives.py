"""Negatives for a model of retrieval: items that are drawn uniformly, beside the items of a step's rows.

Which items a step draws depends on the seed and the step only, so it is the same on any number of ranks and
after a resume. Each rank looks up a part of them: its batch gets a row for each, with the item's features
and no value of the others.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn import functional

from trainer.base.errors import ConfigError
from trainer.data.batch import DrawnItems
from trainer.data.lists import Lists
from trainer.data.splitmix import mix_key, splitmix64

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from trainer.data.batch import Batch
    from trainer.retrieval.items import Items

_PURPOSE = 0x6E65676174697665  # so that other draws by the seed and the step differ


class NegativeSampler:
    """Draws items of the training rows, with equal chances, and adds their rows to batches."""

    def __init__(
        self,
        items: Items,
        item: Sequence[str],
        features: Sequence[str],
        *,
        count: int,
        seed: int,
        rank: int,
        world_size: int,
    ) -> None:
        """Read the features of all items.

        Args:
            items: those of the dataset.
            item: the features of an item, by name.
            features: all sparse features, in the order of batches.
            count: the items that a step draws, over all ranks.
            seed: of the draws.
            rank: this rank.
            world_size: all ranks.

        Raises:
            ConfigError: the training rows have no item.
        """
        if not items.trained:
            raise ConfigError(
                "negatives are drawn from the items of the training rows, but these have none that the "
                "vocabulary knows; leave negatives out, or prepare more rows"
            )
        self._ids = torch.from_numpy(items.ids[: items.trained])
        self._count = count
        self._seed = seed
        self._cuts = [count * each // world_size for each in range(world_size + 1)]
        self._own = slice(self._cuts[rank], self._cuts[rank + 1])
        self._lists = _lists_of(items, [name in item for name in features])

    def draw(self, step: int) -> npt.NDArray[np.int64]:
        """Return the places of a step's items, [count]; one may be drawn twice."""
        start = np.uint64(mix_key(_PURPOSE, self._seed, step))
        with np.errstate(over="ignore"):  # numbers of 64 bits wrap
            numbers = splitmix64(np.arange(self._count, dtype=np.uint64) + start)
        return (numbers % np.uint64(len(self._ids))).astype(np.int64)

    def extend(self, batch: Batch, step: int) -> tuple[Batch, DrawnItems]:
        """Return the batch with this rank's share of a step's items as rows behind its own."""
        places = self.draw(step)
        own = places[self._own]
        sizes = [high - low for low, high in zip(self._cuts, self._cuts[1:], strict=False)]
        drawn = DrawnItems(self._ids[places], tuple(sizes), len(own), len(self._ids))
        ids, lengths = _split(batch)
        parts: list[Tensor] = []
        counts: list[Tensor] = []
        weights = _weights_of(batch, lengths)
        weighed: list[Tensor] = []
        for feature, (each, known) in enumerate(zip(ids, lengths, strict=True)):
            lists = self._lists.get(feature)
            taken = None if lists is None else lists.take(own)
            parts.append(each)
            counts.append(known)
            weighed += [] if weights is None else [weights[feature]]
            if taken is None:
                counts.append(torch.zeros(len(own), dtype=torch.int32))
            else:
                parts.append(torch.from_numpy(np.array(taken.values)))
                counts.append(torch.from_numpy(taken.lengths.astype(np.int32)))
                if weights is not None:
                    weighed.append(
                        torch.ones(len(taken.values))
                        if taken.weights is None
                        else torch.from_numpy(np.array(taken.weights, np.float32))
                    )
        added = replace(
            batch,
            dense=functional.pad(batch.dense, (0, 0, 0, len(own))),
            sparse=torch.cat(parts),
            labels=functional.pad(batch.labels, (*(0, 0) * (batch.labels.dim() - 1), 0, len(own))),
            lengths=torch.cat(counts).view(len(ids), -1),
            weights=None if batch.weights is None else functional.pad(batch.weights, (0, len(own))),
            id_weights=torch.cat(weighed) if weighed else None,
        )
        return added, drawn


def _lists_of(items: Items, chosen: Sequence[bool]) -> Mapping[int, Lists]:
    """Return the ids of some features of the training rows' items."""
    (batch,) = items.batches(batch_size=items.rows.rows, rank=0, world_size=1)
    ids, lengths = _split(batch)
    weights = _weights_of(batch, lengths)
    found = {}
    for feature, (each, counts) in enumerate(zip(ids, lengths, strict=True)):
        if chosen[feature]:
            sizes = counts[: items.trained].numpy().astype(np.int64)
            own = None if weights is None else weights[feature][: sizes.sum()].numpy()
            found[feature] = Lists(sizes, each[: sizes.sum()].numpy(), own)
    return found


def _split(batch: Batch) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """Return each feature's ids, and their number in each sample."""
    if batch.lengths is None:
        one = torch.ones(len(batch), dtype=torch.int32)
        return list(batch.sparse), [one] * len(batch.sparse)
    return batch.sparse.split(batch.lengths.sum(dim=1).tolist()), list(batch.lengths)


def _weights_of(batch: Batch, lengths: Sequence[Tensor]) -> Sequence[Tensor] | None:
    """Return the weights of each feature's ids; None if the batch has none."""
    if batch.id_weights is None:
        return None
    return batch.id_weights.split([int(each.sum()) for each in lengths])
