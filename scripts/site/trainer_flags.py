"""The page of the trainer's flags, from the models that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.settings_reference import default, kind, limits
from scripts.site.text import bullet
from trainer.base.config import TrainerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic import BaseModel

NAME = "reference/trainer-flags.md"
_HEAD = """# The trainer's flags

Every key of the section `trainer:` of `cloudrec.yaml`, which is also a flag of
`python -m trainer`, and follows `--` after `cloudrec train`. [The trainer](../trainer.md) explains
them. This page is generated from the models that read the keys (`python -m scripts.site`).
"""


def page() -> str:
    """Return the page."""
    return _HEAD + "".join(_sections())


def _sections() -> Iterator[str]:
    for group in reversed(TrainerConfig.__bases__):
        yield f"\n## {(group.__doc__ or '').strip().rstrip('.')}\n\n" + "".join(_entries(group))


def _entries(group: type[BaseModel]) -> Iterator[str]:
    for name, field in group.model_fields.items():
        facts = [
            kind(field.annotation),
            *limits(field),
            *([f"default {default(field)}"] if default(field) else []),
        ]
        yield bullet(f"`--{name}` ({', '.join(facts)}): {field.description or ''}")
