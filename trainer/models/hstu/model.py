"""HSTU: layers of attention over the history, with the candidate as its last event, and an MLP behind.

Zhai et al. 2024, "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
Recommendations". Attention is pointwise (SiLU of the scores, no softmax), with a bias by the distance of two
events, and gated. The histories here have no times and no kinds of actions, so there is no bias by time, and
events are not interleaved with actions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.base.errors import ConfigError
from trainer.models.parts import DeepLayers, head_of
from trainer.models.sequences.histories import flat, flat_width, histories, others

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs, Sequence


class AttentionLayer(nn.Module):
    """One layer: [B, events, width] -> [B, events, width]."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width)
        self.project = nn.Linear(width, 4 * width)
        self.bias = nn.Parameter(torch.zeros(length + 1, heads))  # by the distance of two events
        self.norm_out = nn.LayerNorm(width)
        self.out = nn.Linear(width, width)

    def forward(self, events: Tensor, distance: Tensor, visible: Tensor) -> Tensor:
        """Return the events after the layer; `distance` and `visible` are [B, events, events]."""
        gate, *parts = functional.silu(self.project(self.norm(events))).chunk(4, dim=2)
        values, queries, keys = (each.unflatten(2, (self.heads, -1)).transpose(1, 2) for each in parts)
        bias = functional.embedding(distance, self.bias).permute(0, 3, 1, 2)
        scores = functional.silu(queries @ keys.transpose(2, 3) + bias) / events.shape[1]
        attended = ((scores * visible[:, None]) @ values).transpose(1, 2).flatten(2)
        changed: Tensor = self.out(self.norm_out(attended) * gate)
        return events + changed


class HSTU(nn.Module):
    """An MLP of all features and of the candidate after the layers."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.histories = histories(inputs, "hstu")
        self.unpaired = others(inputs, self.histories)
        for each in self.histories:
            if each.width % inputs.attention_heads:
                raise ConfigError(
                    f"attention_num_heads is {inputs.attention_heads}, but a history's vectors have width "
                    f"{each.width}; take a divisor of it"
                )
        self.stacks = nn.ModuleList(
            nn.ModuleList(
                AttentionLayer(each.width, inputs.attention_heads, each.length)
                for _ in range(inputs.attention_layers)
            )
            for each in self.histories
        )
        width = flat_width(inputs, self.unpaired) + sum(each.width for each in self.histories)
        self.top = head_of(inputs.tasks, partial(DeepLayers, width, inputs.hidden))

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor | Sequence]) -> Tensor:
        """Return logits [B], or [B, tasks]."""
        found = [
            _attend(stack, *history.of(vectors))
            for stack, history in zip(self.stacks, self.histories, strict=True)
        ]
        logits: Tensor = self.top(torch.cat([*flat(dense, vectors, self.unpaired), *found], dim=1))
        return logits


def _attend(layers: nn.Module, candidate: Tensor, history: Sequence) -> Tensor:
    """Return the candidate after the layers [B, width]."""
    events = torch.cat([history.vectors, candidate[:, None]], dim=1)
    length = history.vectors.shape[1]
    places = torch.arange(length, device=candidate.device).expand(candidate.shape[0], length)
    places = torch.cat([places, history.lengths[:, None]], dim=1)  # the candidate comes after the last event
    present = functional.pad(history.mask, (0, 1), value=True)
    distance = places[:, :, None] - places[:, None]
    visible = (distance >= 0) & present[:, None]
    distance = distance.clamp_min(0)
    for layer in layers.children():
        events = layer(events, distance, visible)
    return events[:, -1]


def build(inputs: ModelInputs) -> HSTU:
    """Return a new model; ConfigError if the data has no history, or heads do not divide its width."""
    return HSTU(inputs)


build.sequences = True  # type: ignore[attr-defined] # the protocol's
