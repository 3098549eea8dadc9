"""The models that `--model` names, and a user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainer.base.config import DLRM_MODELS, EXPERT_MODELS, MODELS
from trainer.base.errors import ConfigError
from trainer.base.user_code import import_named, import_source

if TYPE_CHECKING:
    from trainer.models.protocol import ModelFactory


def find_factory(model: str, source: str | None = None) -> ModelFactory | None:
    """Return the factory of a model; None for those of `trainer.models.model`.

    Args:
        model: `--model`.
        source: the text of a user's module (`model_source`); None to import it.

    Raises:
        ConfigError: a user's module cannot be imported, or has no such function.
    """
    if model in DLRM_MODELS:
        return None
    factory: Any
    if source is not None and model not in MODELS:
        factory = import_source(model, source, "model")
    else:
        folder = "multi_task." if model in EXPERT_MODELS else ""
        name = f"trainer.models.{folder}{model}:build" if model in MODELS else model
        factory = import_named(name, "model", "my_model:build")
    if not callable(factory):
        raise ConfigError(
            f"model {model}: it is a {type(factory).__name__}, not a function that makes a module"
        )
    made: ModelFactory = factory
    return made


def takes_sequences(factory: ModelFactory | None) -> bool:
    """Whether a model reads sequences in order; others get the mean of their vectors."""
    return getattr(factory, "sequences", False) is True


def table_width(factory: ModelFactory | None, dim: int, model: str) -> int:
    """Return the width of a table whose feature has vectors of this dimension.

    Raises:
        ConfigError: the model gives a width that tables cannot have.
    """
    columns = getattr(factory, "columns", None)
    if columns is None:
        return dim
    width = columns(dim)
    if not isinstance(width, int) or width < 1 or width % 4:
        raise ConfigError(f"model {model}: columns({dim}) is {width!r}; it must be a multiple of 4")
    return width
