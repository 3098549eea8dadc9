"""What is generated, by its name in docs/."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scripts import settings_reference
from scripts.site import commands, errors, pictures, trainer_flags

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCS = Path(__file__).parents[2] / "docs"


def generated() -> Mapping[str, str]:
    """Return the text of each generated file."""
    pages = {each.NAME: each.page() for each in (commands, errors, trainer_flags)}
    return {**pages, "settings.md": settings_reference.page(), **pictures.pictures()}
