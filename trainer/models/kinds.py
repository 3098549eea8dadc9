"""The kind of a model: what its outputs are, and so how it is trained, evaluated, scored and exported.

ranking: outputs are logits, and each sample has its own loss. comparing: the loss compares the samples of a
step with one another. retrieval: comparing, and outputs have the vectors of users and of items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from trainer.base.errors import ConfigError
from trainer.models.protocol import ComparingModel, OwnLoss, RetrievalModel

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A model's kind, with the model as what it is.

    Attributes:
        loss: of a ranking model with its own loss.
        comparing: the model, if it compares samples; also one for retrieval.
        retrieval: the model, if it is for retrieval.
    """

    loss: OwnLoss | None = None
    comparing: ComparingModel | None = None
    retrieval: RetrievalModel | None = None

    @property
    def name(self) -> Literal["ranking", "comparing", "retrieval"]:
        """The kind."""
        if self.retrieval is not None:
            return "retrieval"
        return "ranking" if self.comparing is None else "comparing"

    def scores(self, outputs: Tensor) -> Tensor:
        """Return the logits [B] or [B, tasks] of what the model's forward returned."""
        return outputs if self.comparing is None else self.comparing.scores(outputs)


RANKING = ModelKind()


def kind_of(net: nn.Module, name: str) -> ModelKind:
    """Return the kind of a module, by its methods.

    Args:
        net: the module.
        name: `--model`, for messages.

    Raises:
        ConfigError: it has a part of a kind's methods.
    """
    has = {each for each in ("batch_loss", "scores", "towers", "learn_counts") if _has(net, each)}
    for method, needed in {"batch_loss": {"scores"}, "learn_counts": {"batch_loss", "towers"}}.items():
        if method in has and (missing := sorted(needed - has)):
            raise ConfigError(
                f"model {name}: it has the method {method}, but not {' and '.join(missing)}, without which "
                "it can be neither trained nor scored; docs/own-model.md describes them"
            )
    return ModelKind(
        loss=net if isinstance(net, OwnLoss) else None,
        comparing=net if isinstance(net, ComparingModel) else None,
        retrieval=net if isinstance(net, RetrievalModel) else None,
    )


def _has(net: nn.Module, method: str) -> bool:
    return callable(getattr(net, method, None))
