"""Importing what a user names as MODULE:NAME: a loader of data or a model."""

from __future__ import annotations

import importlib
import sys
import types
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


def import_source(text: str, source: str, setting: str) -> Any:  # noqa: ANN401 - a module may hold anything
    """Return the object that MODULE:NAME names, from the module's own text instead of a file.

    Raises:
        ConfigError: the text has an error, or the module no such name.
    """
    module_name, _, name = text.partition(":")
    module = sys.modules.get(module_name)
    if not isinstance(module, _SourceModule) or module.source != source:
        module = _SourceModule(module_name)
        module.source = source
        try:
            exec(compile(source, f"{module_name}.py", "exec"), module.__dict__)  # noqa: S102 - the user's model
        except Exception as error:
            raise ConfigError(
                f"{setting} {text}: {type(error).__name__}: {error}; the module must be one file that "
                "imports only installed packages"
            ) from error
        sys.modules[module_name] = module  # dataclasses and pickle look it up there
    try:
        return getattr(module, name)
    except AttributeError as error:
        raise ConfigError(f"{setting} {text}: {error}") from error


class _SourceModule(types.ModuleType):
    """A module that was made of a text."""

    source = ""
