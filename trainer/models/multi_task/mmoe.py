"""MMoE: experts that all tasks share, mixed for each task by its own gate, and a tower for each task.

Ma et al. 2018, "Modeling Task Relationships in Multi-task Learning with Multi-gate Mixture-of-Experts".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from trainer.models.multi_task.experts import Experts, Gate, Towers, split_hidden

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainer.models.protocol import ModelInputs


class MultiGateExperts(nn.Module):
    """The tower of a task sees the experts' outputs, weighed by the task's gate."""

    def __init__(self, inputs: ModelInputs) -> None:
        super().__init__()
        sizes, hidden = split_hidden(inputs, "mmoe")
        self.experts = Experts(inputs.experts, inputs.width, sizes)
        self.gates = nn.ModuleList(Gate(inputs.width, inputs.experts) for _ in inputs.tasks)
        self.towers = Towers(len(inputs.tasks), sizes[-1], hidden)

    def forward(self, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
        """Return logits [B, tasks]."""
        inputs = torch.cat([dense, *vectors.values()], dim=1)
        outputs = self.experts(inputs)
        logits: Tensor = self.towers([gate(inputs, outputs) for gate in self.gates])
        return logits


def build(inputs: ModelInputs) -> MultiGateExperts:
    """Return a new model."""
    return MultiGateExperts(inputs)
