"""PLE: layers of shared experts and of experts of one task each, then a tower for each task.

Tang et al. 2020, "Progressive Layered Extraction (PLE): A Novel Multi-Task Learning (MTL) Model for
Personalized Recommendations". With one layer it is the paper's CGC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.models.multi_task.experts import Experts, Gate, Towers, split_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainer.models.protocol import ModelInputs


class Extraction(nn.Module):
    """A layer: each task mixes its own and the shared experts; the shared part mixes all experts.

    The last layer has no shared part, since nothing would read it.
    """

    def __init__(self, width: int, sizes: Sequence[int], *, tasks: int, experts: int, is_last: bool) -> None:
        super().__init__()
        self.shared = Experts(experts, width, sizes)
        self.own = nn.ModuleList(Experts(experts, width, sizes) for _ in range(tasks))
        self.gates = nn.ModuleList(Gate(width, 2 * experts) for _ in range(tasks))
        self.shared_gate = None if is_last else Gate(width, (tasks + 1) * experts)

    def forward(self, own: Sequence[Tensor], shared: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the tasks' outputs and the shared one, of their inputs [B, width]."""
        common = self.shared(shared)
        each = [experts(inputs) for experts, inputs in zip(self.own, own, strict=True)]
        mixed = [
            gate(inputs, torch.cat([outputs, common], dim=1))
            for gate, inputs, outputs in zip(self.gates, own, each, strict=True)
        ]
        if self.shared_gate is None:
            return mixed, shared
        return mixed, self.shared_gate(shared, torch.cat([*each, common], dim=1))


class LayeredExtraction(nn.Module):
    """Extraction layers one upon another, and towers."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        sizes, hidden = split_hidden(inputs, "ple")
        tasks, layers = len(inputs.tasks), inputs.extraction_layers
        self.layers = nn.ModuleList(
            Extraction(
                sizes[-1] if layer else inputs.width,
                sizes,
                tasks=tasks,
                experts=inputs.experts,
                is_last=layer == layers - 1,
            )
            for layer in range(layers)
        )
        self.towers = Towers(tasks, sizes[-1], hidden)

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B, tasks]."""
        shared = torch.cat([dense, *vectors.values()], dim=1)
        own = [shared] * len(self.towers)
        for layer in self.layers:
            own, shared = layer(own, shared)
        logits: Tensor = self.towers(own)
        return logits


def build(inputs: ModelInputs) -> LayeredExtraction:
    """Return a new model."""
    return LayeredExtraction(inputs)
