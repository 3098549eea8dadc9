"""What differs between the clouds' object stores; found by the scheme of a URI, imported when used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from trainer.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXTRAS = {"s3": "aws", "abfs": "azure", "abfss": "azure", "az": "azure", "gs": "gcp", "gcs": "gcp"}

# 409: two conditional uploads of one name met, and one of them must try again
TRANSIENT = {408, 409, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a request is waited for, and how often it is made."""

    answer_s: float = 60.0  # without a byte
    attempts: int = 9  # which takes 16 s if each fails at once

    def wait_s(self, failures: int) -> float:
        """How long to wait after so many failures, at least 1."""
        return min(0.1 * 1.7**failures, 15.0)


class Cloud(Protocol):
    """One cloud's module in this package, named as the extra that it needs."""

    def connect(self, uri: str, patience: Patience) -> tuple[Any, str]:
        """An fsspec file system of its own, without caches, and the URI's path in it.

        It repeats each request that fails in passing, as `patience` has it. Credentials are
        found by the SDK itself: workload identity, a profile, variables.

        Raises:
            ValueError: the URI or the environment names no account or place.
        """
        ...

    def status(self, error: BaseException) -> int | None:
        """The HTTP status that an error stands for; None if no answer came, or none is known."""
        ...

    def is_unanswered(self, error: BaseException) -> bool:
        """Whether the request got no answer, or not all of one; it may have had its effect."""
        ...

    def marked(self, mark: str) -> Mapping[str, Any]:
        """The options of `open` that store a mark in an object's metadata."""
        ...

    def mark_of(self, files: Any, path: str) -> str | None:  # noqa: ANN401 - fsspec has no types
        """The mark of the object that has the path now."""
        ...

    def in_parts(self, part_bytes: int) -> Mapping[str, Any]:
        """The options of `pipe_file` that say how large one request may be."""
        ...

    def discard_unfinished(self, files: Any, path: str) -> None:  # noqa: ANN401 - fsspec has no types
        """Drop uploads below a path that nobody will finish, where the store keeps them for ever."""
        ...


def find_cloud(uri: str) -> Cloud:
    """The cloud that a URI's scheme names.

    Raises:
        ConfigError: none does, or its extra is not installed.
    """
    scheme = uri.partition("://")[0].lower()
    if scheme not in EXTRAS:
        raise ConfigError(
            f"checkpoint_dir {uri!r}: the scheme {scheme!r} is not supported, only a path, file://, "
            f"{', '.join(f'{known}://' for known in EXTRAS)}"
        )
    try:
        cloud: Any = import_module(f"{__name__}.{EXTRAS[scheme]}")
    except ImportError as error:
        extra, module = EXTRAS[scheme], (error.name or "a part").partition(".")[0]
        raise ConfigError(
            f"checkpoint_dir {uri!r}: {scheme}:// needs the extra {extra!r}, of which {module} is not "
            f"installed; pip install 'cloudrec[{extra}]'"
        ) from error
    return cloud
