"""From the URI a user gives to a path on this machine, where it names one."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit


def is_local(uri: str) -> bool:
    """Whether it is a path or a file:// URI, and no other one."""
    scheme, separator, _ = uri.partition("://")
    return not separator or scheme.lower() == "file"


def local_path(uri: str) -> Path:
    """The path that a plain path or a file:// URI names.

    Raises:
        ValueError: it names something else; the message tells what, and what to do.
    """
    scheme, separator, _ = uri.partition("://")
    if not separator:
        return Path(uri).expanduser()
    if not is_local(uri):
        raise ValueError(
            f"{uri!r}: the scheme {scheme!r} is not supported yet, only paths and file://; "
            "copy or mount it on this machine and give its path"
        )
    parts = urlsplit(uri)
    if parts.netloc not in {"", "localhost"}:
        raise ValueError(f"{uri!r}: names the host {parts.netloc!r}; a local URI is file:///path")
    return Path(unquote(parts.path))
