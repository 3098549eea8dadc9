"""The source of a container's log: the kubelets, behind a protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """The container of a log; `previous`: the one before the last restart."""

    pod: Mapping[str, Any]
    container: str
    follow: bool
    previous: bool


Line = tuple[float, bytes]
"""The virtual moment at which a line was written, and the line with its line feed."""


class LogSource(Protocol):
    """The side that runs the containers."""

    def __call__(self, request: LogRequest, /) -> Iterable[Line | None]:
        """Return all lines of a container from its start; ApiError (400) if it has not started.

        It refuses when called, not when read. While it follows, it yields None about once a second if
        there is nothing new; the first None is the end of the lines that existed when it was called.
        It ends with the container.
        """
