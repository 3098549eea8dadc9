"""What a batch must be before it may touch the model: ids in range, finite numbers, labels of 0 and 1."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from trainer.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from trainer.data.batch import Batch
    from trainer.data.source import Source

SHOWN_IDS = 8  # of a bad batch, in a message


class BatchChecks:
    """Looks at batches of data that was not looked at before; the rest passes untouched."""

    def __init__(self, source: Source, rows: Mapping[str, int], *, hash_overflow: bool) -> None:
        """`rows` are the tables', by feature; with `hash_overflow` ids are taken modulo them."""
        self.dense_features = source.dense_features
        self.features = tuple(rows)
        self.limits = torch.tensor(list(rows.values()), dtype=torch.int32)[:, None]
        too_small = any(rows[name] < source.num_embeddings[name] for name in rows)
        self.wraps = hash_overflow and (too_small or not source.checked)
        self.looks = not source.checked

    def __call__(self, batch: Batch) -> Batch:
        """The batch, its ids within the tables.

        Raises:
            DataError: a value is out of range; feature, value, limit and sample are named.
        """
        if self.wraps:
            batch = replace(batch, sparse=torch.remainder(batch.sparse, self._limits_of(batch)))
        if self.looks and len(batch):
            self._check_ids(batch)
            self._check_dense(batch)
            self._check_labels(batch)
        return batch

    def stream(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Every batch, checked."""
        return map(self, batches) if self.wraps or self.looks else iter(batches)

    def _check_ids(self, batch: Batch) -> None:
        bad = (batch.sparse < 0) | (batch.sparse >= self._limits_of(batch))
        if not bool(bad.any()):
            return
        place = int(bad.flatten().int().argmax())
        cells = torch.arange(len(self.features) * len(batch))  # feature by feature, a sample each
        if batch.lengths is not None:
            cells = cells.repeat_interleave(batch.lengths.flatten())
        feature, sample = divmod(int(cells[place]), len(batch))
        limit, found = int(self.limits[feature]), int(batch.sparse.flatten()[place])
        raise DataError(
            f"{self.features[feature]} of sample {int(batch.sample_ids[sample])} holds the id {found}; its "
            f"table has {limit} rows, so ids go from 0 to {limit - 1}; mend the data, give larger "
            "num_embeddings, or set hash_overflow to take ids modulo the rows"
        )

    def _limits_of(self, batch: Batch) -> Tensor:
        """What each id must stay below, in the shape of the batch's ids or one that spreads to it."""
        if batch.lengths is None:
            return self.limits
        return self.limits.flatten().repeat_interleave(batch.lengths.sum(dim=1))

    def _check_dense(self, batch: Batch) -> None:
        if bool(torch.isfinite(batch.dense.sum())):  # one pass; a sum of finite values can overflow
            return
        bad = ~torch.isfinite(batch.dense)
        if not bool(bad.any()):
            return
        place, feature = divmod(int(bad.flatten().int().argmax()), batch.dense.shape[1])
        raise DataError(
            f"{self.dense_features[feature]} of sample {int(batch.sample_ids[place])} is "
            f"{float(batch.dense[place, feature])}; dense features must be finite: mend or drop the sample"
        )

    def _check_labels(self, batch: Batch) -> None:
        bad = (batch.labels != 0) & (batch.labels != 1)
        if not bool(bad.any()):
            return
        place = int(bad.int().argmax())
        raise DataError(
            f"sample {int(batch.sample_ids[place])} has the label {float(batch.labels[place]):g}; "
            "labels must be 0 or 1"
        )


def spell_ids(ids: Sequence[int]) -> str:
    """Some sample ids, and how many there are."""
    shown = ", ".join(map(str, ids[:SHOWN_IDS]))
    return f"samples {shown}" + (f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else "")
