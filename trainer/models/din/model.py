"""DIN: the history of a user, weighed by how much each event has to do with the candidate.

Zhou et al. 2018, "Deep Interest Network for Click-Through Rate Prediction". As there, weights are not
normalised by a softmax, so that their sum is the strength of the interest. Activations are PReLU: DICE
keeps running statistics, and checkpoints keep parameters only. The order of events does not matter.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.models.parts import head_of
from trainer.models.sequences.histories import flat, flat_width, histories, others

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer.models.protocol import ModelInputs
    from trainer.models.protocol import Sequence as Events


class PReLULayers(nn.Sequential):
    """Linear layers with PReLU between them, to one number: [..., width] -> [...]."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        layers: list[nn.Module] = []
        for wide, narrow in pairwise([width, *hidden]):
            layers += [nn.Linear(wide, narrow), nn.PReLU()]
        super().__init__(*layers, nn.Linear([width, *hidden][-1], 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return one number a sample."""
        output: Tensor = super().forward(inputs)
        return output.squeeze(-1)


class ActivationUnit(nn.Module):
    """Weighs the events of a history by the candidate, and adds them up."""

    def __init__(self, width: int, hidden: Sequence[int]) -> None:
        super().__init__()
        self.weigh = PReLULayers(4 * width, hidden)

    def forward(self, candidate: Tensor, history: Events) -> Tensor:
        """Return the weighted sum of the events [B, width]."""
        events = history.vectors
        beside = candidate[:, None].expand_as(events)
        weights = self.weigh(torch.cat([beside, events, beside - events, beside * events], dim=2))
        return torch.einsum("bl,blw->bw", weights * history.mask, events)


class DIN(nn.Module):
    """An MLP of all features and of the interest in the candidate."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        self.histories = histories(inputs, "din")
        self.unpaired = others(inputs, self.histories)
        self.interests = nn.ModuleList(
            ActivationUnit(each.width, inputs.attention_sizes) for each in self.histories
        )
        width = flat_width(inputs, self.unpaired) + sum(each.width for each in self.histories)
        self.top = head_of(inputs.tasks, partial(PReLULayers, width, inputs.hidden))

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor | Events]) -> Tensor:
        """Return logits [B], or [B, tasks]."""
        found = [
            interest(*history.of(vectors))
            for interest, history in zip(self.interests, self.histories, strict=True)
        ]
        logits: Tensor = self.top(torch.cat([*flat(dense, vectors, self.unpaired), *found], dim=1))
        return logits


def build(inputs: ModelInputs) -> DIN:
    """Return a new model; ConfigError if the data has no history."""
    return DIN(inputs)


build.sequences = True  # type: ignore[attr-defined] # the protocol's
