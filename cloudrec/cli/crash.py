"""The report of a bug in cloudrec: one line for the user, and the traceback in a file."""

from __future__ import annotations

import os
import tempfile
import traceback
from pathlib import Path

from cloudrec.errors import CloudrecError
from cloudrec.home import Home, make_private
from cloudrec_contract.secret_values import hidden


def keep_trace(error: Exception) -> tuple[str, str, int]:
    """Write the trace to a file, without secrets; return the message, the remedy and the exit code."""
    text = hidden("".join(traceback.format_exception(error)), os.environ)
    try:
        folder = make_private(Home.from_environment(os.environ).root / "crashes")
    except CloudrecError:
        folder = Path(tempfile.gettempdir())
    handle, name = tempfile.mkstemp(prefix="crash-", suffix=".log", dir=folder)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    kind = type(error).__name__
    message = hidden(str(error), os.environ)
    return (
        f"a bug in cloudrec: {kind}: {message}",
        f"please report it with {name}; nothing was rolled back",
        1,
    )
