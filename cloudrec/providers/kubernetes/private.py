"""The private copy of a context: made by `up`, gone with `down`; it tells which cluster it is of."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from cloudrec.cloud.kubeconfig import write
from cloudrec.engine.graph import TAG_KEY, Condition, Difference, Observed, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.home import storage_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.engine.graph import Resource
    from cloudrec.home import Home

KUBECONFIG = "kubeconfig"
KINDS: Mapping[str, AbstractSet[str]] = {KUBECONFIG: frozenset()}

_FILE = "kubeconfig"
_OURS = "cloudrec.io/adopted"  # the name of the extension that tells whose it is


def path_of(home: Home, title: str) -> Path:
    """Return where the copy of a cluster's context is."""
    return home.clusters / title / _FILE


def digest(config: Mapping[str, Any]) -> str:
    """Return what tells one kubeconfig from another, and nothing of what is in it."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


def titles(home: Home) -> Sequence[str]:
    """Return the names of the clusters of which this home has a copy."""
    folders = sorted(home.clusters.iterdir()) if home.clusters.is_dir() else []
    return [folder.name for folder in folders if read(home, folder.name) is not None]


def read(home: Home, title: str) -> dict[str, Any] | None:
    """Return the copied kubeconfig without what we wrote into it; None where there is none of ours."""
    document = _document(path_of(home, title))
    if document is None:
        return None
    del document["extensions"]
    return document


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        _tags(document)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None
    return document


def _tags(document: Mapping[str, Any]) -> dict[str, str]:
    (ours,) = (each["extension"] for each in document["extensions"] if each["name"] == _OURS)
    return dict(ours["tags"])


class KubeconfigDriver:
    """Handles the copies. A copy's identity is its path.

    Args:
        home: where they are.
        config: what is to be copied; None where nothing is.
    """

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, home: Home, config: Mapping[str, Any] | None) -> None:
        self._home = home
        self._config = config

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Look in the clusters' folders."""
        found = [self._observe(title) for title in titles(self._home) if cluster in {None, title}]
        return [seen for seen in found if seen is not None]

    def find(self, resource: Resource) -> Observed | None:
        """Read it."""
        return self._observe(resource.name)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Tell whether the user's kubeconfig says something else now."""
        if resource.properties == observed.properties:
            return None
        return Difference(reason="the context has changed", in_place=True)

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Write it."""
        del token, identities  # a file by one name: writing it again changes nothing
        mark = {"name": _OURS, "extension": {"tags": dict(resource.tags)}}
        path = path_of(self._home, resource.name)
        write(path, {**(self._config or {}), "extensions": [mark]})
        return str(path)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Write it anew."""
        del observed
        self.create(resource, token="", identities=identities)

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell whether it is there."""
        del kind
        there = path_of(self._home, _title(identity)).exists()
        return (Condition.READY if there else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove it, and the cluster's folder where nothing else is in it."""
        path = path_of(self._home, _title(observed.identity))
        try:
            path.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            raise storage_error(path, error) from error

    def verdict(self, error: Exception) -> Verdict:
        """A disk that refuses once refuses again."""
        del error
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say what went wrong."""
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
        )


def _title(identity: str) -> str:
    return identity.rpartition("/")[0].rpartition("/")[2]
