"""The environment of a command on a stand-in: no variable in it leads to a real account.

Endpoints alone are no protection: a library that ignores one variable would use the user's own credentials.
So the variables by which the clouds' SDKs find accounts are removed. Variables that name a file name a
missing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

import cloudrec_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_NO_PROXY = ("NO_PROXY", "no_proxy")
_LOOPBACK = "127.0.0.1,localhost"


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """What one cloud's SDKs and tools read to find an account.

    Attributes:
        prefixes: what the names of variables begin with that must not reach a command.
        missing: variables that name a file or a folder, with the name of a file that does not exist.
        values: variables that switch off other ways to find credentials, such as a machine's metadata.
    """

    prefixes: tuple[str, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)


def isolated(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return an environment from which no real account of any cloud can be found.

    Args:
        environment: the user's environment.
        folder: a path under which no file exists.
    """
    known = list(_isolations())
    prefixes = tuple(prefix for each in known for prefix in each.prefixes)
    left = {name: value for name, value in environment.items() if not name.startswith(prefixes)}
    # A proxy would get the requests that are meant for the stand-in.
    for name in _NO_PROXY:
        left[name] = ",".join(filter(None, (environment.get(name), _LOOPBACK)))
    for each in known:
        left |= {name: str(folder / place) for name, place in each.missing.items()}
        left |= each.values
    return left


def _isolations() -> Iterator[Isolation]:
    """Yield the constant ISOLATION of each stand-in that has one."""
    for name in cloudrec_sandbox.names():
        found = getattr(import_module(f"{cloudrec_sandbox.__name__}.{name}"), "ISOLATION", None)
        if found is not None:
            yield found
