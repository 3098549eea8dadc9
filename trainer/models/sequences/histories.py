"""Histories: sequence features beside the candidate that they are compared with.

A sequence and another feature that share a table are a pair: the history of a candidate. Pairs of equal
length describe the same events (the item of each, its category), so they are one history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from trainer.base.errors import ConfigError
from trainer.models.protocol import Sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class Pair(NamedTuple):
    """A sequence, and the feature of the candidate that has its table."""

    sequence: str
    candidate: str


class EventHistory(NamedTuple):
    """Pairs of the same events."""

    pairs: tuple[Pair, ...]
    length: int
    width: int  # of an event's vectors side by side, and of the candidate's

    def of(self, vectors: Mapping[str, Tensor | Sequence]) -> tuple[Tensor, Sequence]:
        """Return the candidate's vectors [B, width], and the history."""
        candidate = torch.cat([single(vectors, pair.candidate) for pair in self.pairs], dim=1)
        parts = [several(vectors, pair.sequence) for pair in self.pairs]
        longest = torch.stack([each.lengths for each in parts]).amax(dim=0)
        return candidate, Sequence(torch.cat([each.vectors for each in parts], dim=2), longest)


def histories(inputs: ModelInputs, model: str) -> tuple[EventHistory, ...]:
    """Return the histories of a model's inputs.

    Raises:
        ConfigError: no sequence shares its table with another feature.
    """
    by_length: dict[int, list[Pair]] = {}
    for name, size in inputs.sequences.items():
        same = [each for each in inputs.sparse if inputs.tables.get(each) == inputs.tables.get(name)]
        if same:
            by_length.setdefault(size.length, []).append(Pair(name, same[0]))
    if not by_length:
        raise ConfigError(
            f"model {model} compares a candidate with a history, but no feature shares its table with a "
            "sequence; in the feature schema, give both the same table, as in [{name: item, table: items}, "
            "{name: history, kind: sequence, table: items}]"
        )
    return tuple(
        EventHistory(tuple(pairs), length, sum(inputs.sequences[each.sequence].width for each in pairs))
        for length, pairs in by_length.items()
    )


def others(inputs: ModelInputs, found: tuple[EventHistory, ...]) -> tuple[str, ...]:
    """Return the sequences that are in no history."""
    paired = {pair.sequence for each in found for pair in each.pairs}
    return tuple(name for name in inputs.sequences if name not in paired)


def flat(dense: Tensor, vectors: Mapping[str, Tensor | Sequence], unpaired: tuple[str, ...]) -> list[Tensor]:
    """Return the dense values, the vectors of plain features, and the means of sequences without a pair."""
    plain = [each for each in vectors.values() if isinstance(each, Tensor)]
    return [dense, *plain, *(mean(several(vectors, name)) for name in unpaired)]


def flat_width(inputs: ModelInputs, unpaired: tuple[str, ...]) -> int:
    """Return the width of `flat`."""
    return inputs.width + sum(inputs.sequences[name].width for name in unpaired)


def mean(sequence: Sequence) -> Tensor:
    """Return the mean of each sample's vectors [B, width]; 0 without any."""
    return sequence.vectors.sum(dim=1) / sequence.lengths.clamp_min(1).to(sequence.vectors.dtype)[:, None]


def single(vectors: Mapping[str, Tensor | Sequence], name: str) -> Tensor:
    """Return the vector of a feature that is no sequence."""
    found = vectors[name]
    assert isinstance(found, Tensor)  # noqa: S101 - for the type checker
    return found


def several(vectors: Mapping[str, Tensor | Sequence], name: str) -> Sequence:
    """Return a sequence feature."""
    found = vectors[name]
    assert isinstance(found, Sequence)  # noqa: S101 - for the type checker
    return found
