"""The model that a server scores with, and how it is replaced by a newer version while requests run.

A source names the newest complete version and reads it. `LiveModel` reads and prepares a new version beside
the served one, then replaces one reference: a request that took the old model ends with it, and the next one
has the new model. A version that cannot be read is reported, and the old one stays.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from trainer.base.errors import TrainerError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainer.serving.scorer import TrainedModel

_LOG = logging.getLogger(__name__)
_MOST_SKIPPED = 32  # polls between two attempts at a version that cannot be read

T = TypeVar("T")


class ModelSource(Protocol):
    """Where the versions of a model come from."""

    def newest(self) -> str:
        """Return the name of the newest complete version.

        Raises:
            TrainerError: there is none, or the place cannot be read.
        """
        ...

    def load(self, version: str, held: TrainedModel | None, /) -> TrainedModel:
        """Read a version.

        Args:
            version: a name that `newest` returned.
            held: the model that is served now, from which a source may take what has not changed. Its
                tensors are never changed in place, since requests read them.

        Raises:
            TrainerError: the version is damaged, incomplete or gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Served(Generic[T]):
    """A version that is served."""

    version: str
    trained: TrainedModel
    ready: T  # what `prepare` made of the model


@dataclass(frozen=True, slots=True)
class Refused:
    """A version that could not be read."""

    version: str | None  # None: the source could not name its newest
    reason: str


class LiveModel(Generic[T]):
    """The served model, which `poll` replaces once its source has another version."""

    def __init__(self, source: ModelSource, prepare: Callable[[TrainedModel], T]) -> None:
        """Read the newest version.

        Args:
            source: the versions.
            prepare: makes what requests use; called for each version before it is served.

        Raises:
            TrainerError: the version cannot be read or prepared.
        """
        self._source = source
        self._prepare = prepare
        self._polling = threading.Lock()
        self._failures = 0  # of one version, one after the other
        self._skip = 0  # polls until the next attempt
        self._refused: Refused | None = None
        self._served = self._read(source.newest(), None)

    @property
    def served(self) -> Served[T]:
        """The model to use for one request from its beginning to its end."""
        return self._served

    @property
    def refused(self) -> Refused | None:
        """The newest version, if it cannot be read and an older one is served."""
        return self._refused

    def poll(self) -> bool:
        """Serve the source's newest version; return whether the model was replaced.

        A version that failed is tried again, since it may be only half copied: after 1, 2, 4 and at most 32
        polls.
        """
        with self._polling:
            try:
                version: str | None = None
                version = self._source.newest()
                if version == self._served.version:
                    self._refused, self._failures, self._skip = None, 0, 0
                    return False
                if self._refused is not None and self._refused.version == version and self._skip:
                    self._skip -= 1
                    return False
                new = self._read(version, self._served.trained)
            except (TrainerError, OSError) as error:
                self._report(Refused(version, str(error)))
                return False
            self._served = new
            self._refused, self._failures, self._skip = None, 0, 0
            _LOG.info("serving version %s, step %d", new.version, new.trained.step)
            return True

    def _read(self, version: str, held: TrainedModel | None) -> Served[T]:
        trained = self._source.load(version, held)
        return Served(version, trained, self._prepare(trained))

    def _report(self, refused: Refused) -> None:
        is_same = self._refused is not None and self._refused.version == refused.version
        self._failures = self._failures + 1 if is_same else 1
        self._skip = min(2 ** (self._failures - 1), _MOST_SKIPPED)
        if self._refused != refused:
            _LOG.warning(
                "version %s cannot be served, version %s stays: %s",
                refused.version or "(unknown)",
                self._served.version,
                refused.reason,
            )
        self._refused = refused
