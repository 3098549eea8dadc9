"""The driver of a local cluster's Ray head, which `up` starts and `down` ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Difference, ErrorVerdict, Observed
from cloudrec.errors import CloudrecError
from cloudrec.home import make_private, read_text, storage_error, write_atomically
from cloudrec.process import ray_head
from cloudrec.providers.local import storage
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.engine.graph import Resource
    from cloudrec.process.ray_head import RayHead

KIND = "ray-head"
_TAGS = "tags.json"


class RayHeadDriver:
    """The driver of a cluster's Ray head. Its identity is the folder of its files."""

    deadline_s = 120.0
    poll_s = 0.5

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource) -> Observed | None:
        """Return the head; None if there is none or its process has ended."""
        folder = folder_of(self._clusters / resource.name)
        head = ray_head.read_head(folder)
        return started(self._clusters / resource.name) if head and head.is_alive else None

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Return None: a head has no properties."""
        del resource, observed
        return None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Start a head, unless one is running, and return its folder."""
        del token, identities
        folder = folder_of(self._clusters / resource.name)
        make_private(folder)
        write_atomically(folder / _TAGS, json.dumps(dict(resource.tags)))
        ray_head.begin_head(folder)
        return str(folder)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Do nothing: a head has no properties to change."""

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return READY if its dashboard responds; FAILED with the end of its log if its process has ended."""
        del kind
        folder = Path(identity)
        head = ray_head.read_head(folder)
        if head is None:
            return Condition.GONE, ""
        if not head.is_alive:
            return Condition.FAILED, ray_head.last_words(folder)
        return (Condition.READY if head.is_ready else Condition.PENDING), ""

    def delete(self, observed: Observed) -> None:
        """End the head, and remove its files."""
        folder = folder_of(self._clusters / observed.name)
        try:
            ray_head.end_head(folder)
            if folder.exists():
                shutil.rmtree(folder)
        except OSError as error:
            raise storage_error(folder, error) from error

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return FATAL: errors of the local machine are not transient."""
        del error
        return ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error as a CloudrecError."""
        return error if isinstance(error, CloudrecError) else storage.explain(error)


def folder_of(cluster_folder: Path) -> Path:
    """Return the folder of a cluster's Ray head."""
    return cluster_folder / "ray"


def started(cluster_folder: Path) -> Observed | None:
    """Return the head that was started for a cluster, even if it has ended; None if none was started."""
    folder = folder_of(cluster_folder)
    head = ray_head.read_head(folder)
    if head is None:
        return None
    try:
        tags = safe_object(read_text(folder / _TAGS))
    except (OSError, ValueError):
        tags = {}
    return Observed(
        kind=KIND,
        name=cluster_folder.name,
        identity=str(folder),
        condition=Condition.READY if head.is_alive else Condition.FAILED,
        tags=tags,
        hourly_usd=FREE,
    )


def head_of(cluster_folder: Path) -> RayHead | None:
    """Return the record of the head that was started for a cluster; None if none was started."""
    return ray_head.read_head(folder_of(cluster_folder))


def token_file_of(cluster_folder: Path) -> Path:
    """Return the path of the token of a cluster's head."""
    return ray_head.token_file(folder_of(cluster_folder))
