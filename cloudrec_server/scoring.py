"""Scores of raw rows by a model that is served."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from cloudrec_server.rows import RowsRefusedError, make_rows_encoder
from trainer.base.errors import CheckpointError
from trainer.serving.scorer import Scorer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_server.rows import RowsEncoder
    from trainer.serving.live import LiveModel, Served
    from trainer.serving.scorer import TrainedModel


class Ready(NamedTuple):
    """What scores rows with one version of a model."""

    encoder: RowsEncoder
    scorer: Scorer
    item_columns: tuple[str, ...] = ()  # that only the item's features read

    def scores(self, rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
        """Return the probabilities [rows] or [rows, tasks]; RowsRefusedError names rows that do not fit."""
        ((logits, _),) = self.scorer.score([self.encoder.encode(rows)])
        return torch.sigmoid(logits)

    def users(self, rows: Sequence[Mapping[str, Any]]) -> torch.Tensor:
        """Return the vectors of users [rows, width] of a retrieval model; the item's columns may lack."""
        model = self.scorer.retrieval
        assert model is not None  # noqa: S101 - for the type checker: who asks has one
        ((_, users, _),) = self.scorer.towers(model, [self.encoder.encode(self.filled(rows))])
        return users

    def filled(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return rows of users with null in the item's columns."""
        return [{**dict.fromkeys(self.item_columns), **row} for row in rows]


def make_ready(trained: TrainedModel) -> Ready:
    """Prepare a model for raw rows.

    Raises:
        ConfigError: it does not say how rows are encoded.
        CheckpointError: it gives no finite scores.
    """
    encoder = make_rows_encoder(trained)
    ready = Ready(encoder, Scorer(trained, torch.device("cpu")), encoder.columns_of(trained.shape.item))
    empty: dict[str, None] = {column.name: None for column in ready.encoder.columns}
    _try(ready, empty)
    return ready


def _try(ready: Ready, row: Mapping[str, None]) -> None:
    """Score a row once, so that the first request does not wait for what is made on first use."""
    try:
        scores = ready.scores([row])
    except RowsRefusedError:  # a column that must not be missing
        return
    if not bool(scores.isfinite().all()):
        raise CheckpointError("its scores are not finite: the model has diverged; serve an earlier version")


class Scored(NamedTuple):
    """The scores of a request."""

    version: str
    step: int
    scores: list[Any]  # a number a row, or a list of them in the order of the tasks


def score_requests(live: LiveModel[Ready], requests: Sequence[Sequence[Mapping[str, Any]]]) -> list[Scored]:
    """Return the scores of several requests, all with one version; RowsRefusedError as in `Ready`."""
    served = live.served
    rows = requests[0] if len(requests) == 1 else list(chain.from_iterable(requests))
    for each in requests if len(requests) > 1 else ():  # `encode` would look for columns in all of them
        served.ready.encoder.require_columns(each)
    scores: list[Any] = served.ready.scores(rows).tolist()
    made, first = [], 0
    for each in requests:
        made.append(Scored(served.version, served.trained.step, scores[first : first + len(each)]))
        first += len(each)
    return made


class Users(NamedTuple):
    """The vectors of the users of a request."""

    served: Served[Ready]
    vectors: torch.Tensor

    def items(self, count: int) -> list[list[dict[str, Any]]]:
        """Return the best items of each user, the best first."""
        items = self.served.trained.items
        assert items is not None  # noqa: S101 - for the type checker: `users_of_requests` has looked
        products, places = items.search(self.vectors, count)
        names: Sequence[Any] = items.ids.tolist() if items.values is None else items.values
        return [
            [{"item": names[place], "score": score} for score, place in zip(*row, strict=True) if place >= 0]
            for row in zip(products.tolist(), places.tolist(), strict=True)
        ]


def users_of_requests(live: LiveModel[Ready], requests: Sequence[Sequence[Mapping[str, Any]]]) -> list[Users]:
    """Return the vectors of the users of several requests; RowsRefusedError as in `Ready`.

    Raises:
        NoItemsError: the served version has no items.
    """
    served = live.served
    if served.trained.items is None or served.ready.scorer.retrieval is None:
        raise NoItemsError
    for each in requests if len(requests) > 1 else ():
        served.ready.encoder.require_columns(served.ready.filled(each))
    vectors = served.ready.users(list(chain.from_iterable(requests)))
    parts = vectors.split([len(each) for each in requests])
    return [Users(served, part) for part in parts]


class NoItemsError(Exception):
    """The package has no items."""
