"""Renders the pages' templates; every value is escaped."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from cloudrec.launchers.base.ledger import RunState
from cloudrec.observe.page import human
from cloudrec.version import __version__

if TYPE_CHECKING:
    from jinja2 import Environment

_FOLDER = "page"
TONES = {
    RunState.SUCCEEDED: "good",
    RunState.FAILED: "bad",
    RunState.INTERRUPTED: "warn",
    RunState.RESTARTING: "warn",
    RunState.RUNNING: "live",
    RunState.PENDING: "plain",
}


@cache
def asset(name: str) -> str:
    """Return the text of a style sheet or a script that is shipped with the pages."""
    return resources.files("templates").joinpath(_FOLDER).joinpath(name).read_text(encoding="utf-8")


def sha256(text: str) -> str:
    """Return the hash by which a Content-Security-Policy allows an inline text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def render(name: str, **values: Any) -> str:  # noqa: ANN401 - what the template takes
    """Return a page; its template decides which values it takes."""
    return _environment().get_template(name).render(**values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415 - only pages need it

    environment = Environment(
        loader=FunctionLoader(asset),
        # Names, causes and settings come from users and logs.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"human": human, "tones": TONES, "version": __version__}
    return environment
