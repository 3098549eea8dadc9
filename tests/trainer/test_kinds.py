"""A model's methods say of which kind it is; a part of a kind's methods is refused before the first step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.trainer.own_model import Gated
from trainer.base.errors import ConfigError
from trainer.models.kinds import kind_of
from trainer.models.protocol import ModelInputs

INPUTS = ModelInputs(
    dense=("age",),
    sparse={"user": 8, "movie": 8},
    hidden=(8,),
    cross_layers=1,
    cross_rank=4,
    item=("movie",),
)


class Pairs(nn.Linear):
    """Compares the samples of a step; it imports nothing of the trainer."""

    def batch_loss(self, outputs: Tensor, labels: Tensor, step: object) -> Tensor:
        """Return losses."""
        del step
        return outputs[:, 0] - labels

    def scores(self, outputs: Tensor) -> Tensor:
        """Return logits."""
        return outputs[:, 0]


class Half(nn.Linear):
    """Has a loss of a whole step, and no scores."""

    batch_loss = Pairs.batch_loss


class WithoutTowers(Pairs):
    """Learns counts, and cannot say which vectors rank items."""

    def learn_counts(self, counts: Tensor) -> None:
        """Take them."""


class WithModules(nn.Module):
    """Has parts with the names of methods, as mmoe has."""

    def __init__(self) -> None:
        super().__init__()
        self.towers = nn.Linear(2, 2)


def test_every_kind_is_known_by_its_methods() -> None:
    from trainer.models.two_tower import build  # noqa: PLC0415 - beside its use

    found = kind_of(build(INPUTS), "two_tower")
    assert (found.name, found.loss) == ("retrieval", None)
    assert found.retrieval is found.comparing
    own = Gated(INPUTS)
    assert (kind_of(own, "own").name, kind_of(own, "own").loss) == ("ranking", own)
    assert kind_of(Pairs(2, 2), "own:pairs").name == "comparing"
    assert kind_of(WithModules(), "own:modules").name == "ranking"


def test_scores_are_the_outputs_of_a_ranking_model_only() -> None:
    outputs = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert kind_of(Pairs(2, 2), "own:pairs").scores(outputs).tolist() == [1.0, 3.0]
    assert kind_of(WithModules(), "own:modules").scores(outputs) is outputs


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Half(2, 2), "own:half: it has the method batch_loss, but not scores"),
        (WithoutTowers(2, 2), "own:half: it has the method learn_counts, but not towers"),
    ],
)
def test_a_part_of_a_kind_is_refused(net: nn.Module, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind_of(net, "own:half")
