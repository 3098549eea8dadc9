"""Importing what a user names as MODULE:NAME: a loader of data or a model."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from trainer.base.errors import ConfigError


def import_named(text: str, setting: str, example: str) -> Any:  # noqa: ANN401 - a module may hold anything
    """Return the object that MODULE:NAME names; the current folder is searched after installed packages.

    Raises:
        ConfigError: the text has another form, or there is no such module or name.
    """
    module_name, _, name = text.partition(":")
    if not module_name or not name:
        raise ConfigError(f"{setting} is {text!r}; it must be MODULE:FACTORY, as in {example}")
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # last, so that a file here never replaces an installed package
    try:
        return getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{setting} {text}: {error}; the module must be on PYTHONPATH or in the current folder"
        ) from error
