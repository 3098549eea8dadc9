"""The Ray head of a local cluster as a resource: it begins with `up`, and goes with `down`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition, Difference, Observed, Verdict
from cloudrec.errors import CloudrecError
from cloudrec.home import make_private, storage_error, write_atomically
from cloudrec.providers.local import ray_head, storage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource

KIND = "ray-head"
ADDRESS, TOKEN_FILE = "ray_address", "ray_token_file"  # of a cluster's details
_TAGS = "tags.json"


class RayHeadDriver:
    """Handles a cluster's Ray head. Its identity is the folder that it keeps its files in."""

    deadline_s = 120.0
    poll_s = 0.5

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource) -> Observed | None:
        """Describe the head while its process lives; one that has ended is none."""
        folder = folder_of(self._clusters / resource.name)
        head = ray_head.read_head(folder)
        return started(self._clusters / resource.name) if head and head.is_alive else None

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """There is nothing of it to choose."""
        del resource, observed
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Start it; one that lives is left as it is."""
        del token, identities
        folder = folder_of(self._clusters / resource.name)
        make_private(folder)
        write_atomically(folder / _TAGS, json.dumps(dict(resource.tags)))
        ray_head.begin_head(folder)
        return str(folder)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Nothing of it changes in place."""

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell whether its dashboard answers."""
        del kind
        folder = Path(identity)
        head = ray_head.read_head(folder)
        if head is None:
            return Condition.GONE, ""
        if not head.is_alive:
            return Condition.FAILED, ray_head.last_words(folder)
        return (Condition.READY if head.is_ready else Condition.PENDING), ""

    def delete(self, observed: Observed) -> None:
        """End it, and remove its files."""
        folder = folder_of(self._clusters / observed.name)
        try:
            ray_head.end_head(folder)
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            raise storage_error(folder, error) from error

    def verdict(self, error: Exception) -> Verdict:
        """A machine that cannot start it once cannot again."""
        del error
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say what went wrong."""
        return error if isinstance(error, CloudrecError) else storage.explain(error)


def folder_of(cluster_folder: Path) -> Path:
    """Return where a cluster's Ray head keeps its files."""
    return cluster_folder / "ray"


def started(cluster_folder: Path) -> Observed | None:
    """Describe the head that was started for a cluster, alive or not; None where none was."""
    folder = folder_of(cluster_folder)
    head = ray_head.read_head(folder)
    if head is None:
        return None
    try:
        tags = json.loads((folder / _TAGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        tags = {}
    return Observed(
        kind=KIND,
        name=cluster_folder.name,
        identity=str(folder),
        condition=Condition.READY if head.is_alive else Condition.FAILED,
        tags=tags,
    )


def details(cluster_folder: Path) -> dict[str, Any]:
    """Return how the launcher of Ray's jobs reaches the head; nothing where none was started."""
    folder = folder_of(cluster_folder)
    head = ray_head.read_head(folder)
    if head is None:
        return {}
    return {ADDRESS: head.url, TOKEN_FILE: str(ray_head.token_file(folder))}
