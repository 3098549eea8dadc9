"""The private copy of an adopted context: `up` creates it, `down` removes it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import TAG_KEY, Condition, Difference, ErrorVerdict, Observed, Properties
from cloudrec.errors import CloudrecError
from cloudrec.home import read_text, storage_error
from cloudrec.providers.base.kubeconfig import write
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Resource
    from cloudrec.home import Home

KUBECONFIG = "kubeconfig"
KINDS: Mapping[str, AbstractSet[str]] = {KUBECONFIG: frozenset()}

_FILE = "kubeconfig"
_OURS = "cloudrec.io/adopted"  # the name of the kubeconfig extension that holds the engine's tags


def path_of(home: Home, title: str) -> Path:
    """Return the path of the copy of a cluster's context."""
    return home.cluster(title) / _FILE


def digest(config: Mapping[str, Any]) -> str:
    """Return a digest that identifies a kubeconfig without revealing its content."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def titles(home: Home) -> Sequence[str]:
    """Return the names of the clusters whose context this home has a copy of."""
    folders = sorted(home.clusters.iterdir()) if home.clusters.is_dir() else []
    return [folder.name for folder in folders if read(home, folder.name) is not None]


def read(home: Home, title: str) -> dict[str, Any] | None:
    """Return the copied kubeconfig without cloudrec's extension; None if there is no valid copy."""
    document = _document(path_of(home, title))
    if document is None:
        return None
    del document["extensions"]
    return document


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = safe_object(read_text(path))
        _tags(document)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return document


def _tags(document: Mapping[str, Any]) -> dict[str, str]:
    (ours,) = (each["extension"] for each in document["extensions"] if each["name"] == _OURS)
    return dict(ours["tags"])


@dataclass(frozen=True, kw_only=True)
class KubeconfigProperties(Properties):
    """The requested private copy of a kubeconfig.

    Attributes:
        digest: the digest of its context (see `digest`).
    """

    digest: str


class KubeconfigDriver:
    """The driver of the copies. A copy's identity is its path.

    Args:
        home: holds the copies.
        config: the kubeconfig to copy; None if nothing is created.
    """

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, home: Home, config: Mapping[str, Any] | None) -> None:
        self._home = home
        self._config = config

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Find the copies in the clusters' folders."""
        found = [self._observe(title) for title in titles(self._home) if cluster in {None, title}]
        return [seen for seen in found if seen is not None]

    def find(self, resource: Resource[KubeconfigProperties]) -> Observed | None:
        """Read the copy; None if there is none."""
        return self._observe(resource.name)

    def difference(self, resource: Resource[KubeconfigProperties], observed: Observed) -> Difference | None:
        """Return a difference if the context in the user's kubeconfig has changed."""
        if resource.properties.requested() == observed.properties:
            return None
        return Difference(reason="the context has changed", in_place=True)

    def create(
        self, resource: Resource[KubeconfigProperties], *, token: str, identities: Mapping[str, str]
    ) -> str:
        """Write the copy, and return its path."""
        del token, identities  # idempotent: the file has a fixed name
        mark = {"name": _OURS, "extension": {"tags": dict(resource.tags)}}
        path = path_of(self._home, resource.name)
        write(path, {**(self._config or {}), "extensions": [mark]})
        return str(path)

    def change(
        self, resource: Resource[KubeconfigProperties], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Write the copy again."""
        del observed
        self.create(resource, token="", identities=identities)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return READY if the copy exists, else GONE."""
        del kind
        there = path_of(self._home, _title(identity)).exists()
        return (Condition.READY if there else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the copy, and the cluster's folder if it is empty."""
        path = path_of(self._home, _title(observed.identity))
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise storage_error(path, error) from error

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return FATAL: errors of the local disk are not transient."""
        del error
        return ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error as a CloudrecError."""
        return CloudrecError(f"{type(error).__name__}: {error}")

    def _observe(self, title: str) -> Observed | None:
        document = _document(path_of(self._home, title))
        if document is None:
            return None
        tags = _tags(document)
        del document["extensions"]
        return Observed(
            kind=KUBECONFIG,
            name=tags.get(TAG_KEY, "").partition("/")[2] or title,
            identity=str(path_of(self._home, title)),
            condition=Condition.READY,
            properties={"digest": digest(document)},
            tags=tags,
            location=str(document.get("current-context", "")),
            hourly_usd=FREE,
        )


def _title(identity: str) -> str:
    return identity.rpartition("/")[0].rpartition("/")[2]
