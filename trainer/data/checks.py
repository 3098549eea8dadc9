"""The checks of a batch before the model sees it: ids in range, finite numbers, labels of 0 and 1."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from cloudrec_contract.features import HASH_LIMIT
from trainer.base.errors import DatasetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from torch import Tensor

    from trainer.data.batch import Batch
    from trainer.data.source import SampleSource

SHOWN_IDS = 8  # of a bad batch, in a message


class BatchChecks:
    """Checks batches of sources that were not verified as a whole; other batches pass unchanged."""

    def __init__(self, source: SampleSource, rows: Mapping[str, int], *, hash_overflow: bool) -> None:
        """`rows` are the tables', by feature; with `hash_overflow` ids are taken modulo them."""
        self.dense_features = source.dense_features
        self.features = tuple(rows)
        managed = () if source.schema is None else source.schema.managed
        limits = {**rows, **dict.fromkeys(managed, HASH_LIMIT)}
        dtype = torch.int64 if managed else torch.int32
        self.limits = torch.tensor([limits[name] for name in rows], dtype=dtype)[:, None]
        too_small = any(limits[name] < source.num_embeddings[name] for name in rows)
        self.wraps = hash_overflow and (too_small or not source.checked)
        self.looks = not source.checked
        schema = source.schema
        self.tasks = () if schema is None else schema.tasks
        self.may_lack = torch.tensor(
            [each.missing for each in schema.labels] if schema and self.tasks else []
        )

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch; with `hash_overflow`, ids are taken modulo the tables' rows.

        Raises:
            DatasetError: a value is out of range; it names the feature, value, limit and sample.
        """
        if self.wraps:
            batch = replace(batch, sparse=torch.remainder(batch.sparse, self._limits_of(batch)))
        if self.looks and len(batch):
            self._check_ids(batch)
            self._check_dense(batch)
            self._check_labels(batch)
        return batch

    def stream(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield every batch, checked."""
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
        raise DatasetError(
            f"{self.features[feature]} of sample {int(batch.sample_ids[sample])} holds the id {found}; its "
            f"table has {limit} rows, so ids go from 0 to {limit - 1}; fix the data, give larger "
            "num_embeddings, or set hash_overflow to take ids modulo the rows"
        )

    def _limits_of(self, batch: Batch) -> Tensor:
        """Return the exclusive limit of each id, in a shape that broadcasts to that of the batch's ids."""
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
        raise DatasetError(
            f"{self.dense_features[feature]} of sample {int(batch.sample_ids[place])} is "
            f"{float(batch.dense[place, feature])}; dense features must be finite: fix or drop the sample"
        )

    def _check_labels(self, batch: Batch) -> None:
        bad = (batch.labels != 0) & (batch.labels != 1)
        if self.tasks:
            bad &= ~(self.may_lack & (batch.labels == -1))
        if bool(bad.any()):
            place = int(bad.flatten().int().argmax())
            sample, task = divmod(place, max(1, len(self.tasks)))
            of_task = f" of {self.tasks[task]}" if self.tasks else ""
            raise DatasetError(
                f"sample {int(batch.sample_ids[sample])} has the label "
                f"{float(batch.labels.flatten()[place]):g}{of_task}; labels must be 0 or 1"
            )
        if batch.id_weights is not None and not bool(torch.isfinite(batch.id_weights).all()):
            raise DatasetError("a weight of an id is not finite; prepare the dataset again")
        weights = batch.weights
        if weights is not None and bool((bad := ~torch.isfinite(weights) | (weights < 0)).any()):
            place = int(bad.int().argmax())
            raise DatasetError(
                f"sample {int(batch.sample_ids[place])} has the weight {float(weights[place])}; weights must "
                "be finite numbers from 0"
            )


def spell_ids(ids: Sequence[int]) -> str:
    """Return the first sample ids as text, and the number of the others."""
    shown = ", ".join(map(str, ids[:SHOWN_IDS]))
    return f"samples {shown}" + (f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else "")
