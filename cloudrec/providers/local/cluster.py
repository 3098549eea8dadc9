"""The local provider: registers this machine, so that every later command finds a cluster as on a cloud."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    TAG_OWNER,
    Condition,
    Difference,
    Observed,
    Resource,
    Verdict,
)
from cloudrec.errors import PreflightError, SpecError
from cloudrec.home import make_private, storage_error, write_atomically
from cloudrec.provider import Halt
from cloudrec.providers.local import access, offers, quota, ray_driver, storage
from cloudrec.providers.local.nodes import Machine, inspect
from cloudrec.providers.local.settings import settings_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Driver
    from cloudrec.errors import CloudrecError
    from cloudrec.home import Home
    from cloudrec.provider import Access, Finding, GuardAccess, Offer, Registry
    from cloudrec.spec.models import ClusterSpec

MACHINE = "machine"


class LocalProvider:
    """This machine as a provider."""

    name = "local"
    control_plane = MACHINE
    settle_s = 0.0  # a file system shows a change at once
    kinds: Mapping[str, AbstractSet[str]] = MappingProxyType(
        {
            ray_driver.KIND: frozenset({storage.KIND}),
            MACHINE: frozenset({storage.KIND}),
            storage.KIND: frozenset(),
        }
    )

    def __init__(self, home: Home) -> None:
        self._home = home

    def check(self, cluster: ClusterSpec) -> None:
        """Validate the settings, and refuse what asks for other machines than this one."""
        settings_of(cluster)
        for key in ("region", "zones", "instance_types", "kubernetes_version", "ttl", "budget_usd"):
            if value := getattr(cluster, key):
                raise SpecError(
                    f"cluster.{key} is {value!r}: provider 'local' is this machine and costs nothing",
                    remedy=f"leave cluster.{key} out, or choose a cloud",
                )
        if cluster.nodes != 1:
            raise SpecError(
                f"cluster.nodes is {cluster.nodes}: provider 'local' is this one machine",
                remedy="leave it out; --nproc-per-node starts several processes on it",
            )

    def offers(self, cluster: ClusterSpec) -> Sequence[Offer]:
        """Return this machine."""
        del cluster
        return [offers.offer(inspect())]

    def catalog(self, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
        """Return this machine, whose price does not change."""
        del refresh
        return self.offers(cluster)

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Check disk, memory, GPUs and the trainer's packages."""
        return quota.findings(settings_of(cluster), self._storage(cluster), inspect())

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Describe the storage folder, the machine that uses it, and its Ray head where one is asked for."""
        name = cluster.title

        def tags(kind: str) -> dict[str, str]:
            return {TAG_CLUSTER: name, TAG_OWNER: cluster.owner, TAG_KEY: f"{kind}/{name}"}

        folder = Resource(
            kind=storage.KIND,
            name=name,
            properties={"path": str(self._storage(cluster))},
            tags=tags(storage.KIND),
            holds_data=True,
        )
        machine = Resource(
            kind=MACHINE,
            name=name,
            needs=(folder.key,),
            properties=inspect().as_properties(),
            tags=tags(MACHINE),
        )
        if not settings_of(cluster).ray:
            return [folder, machine]
        head = Resource(kind=ray_driver.KIND, name=name, needs=(folder.key,), tags=tags(ray_driver.KIND))
        return [folder, machine, head]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return the drivers of all kinds."""
        del cluster
        return {
            storage.KIND: storage.StorageDriver(self._home.clusters),
            MACHINE: MachineDriver(self._home.clusters),
            ray_driver.KIND: ray_driver.RayHeadDriver(self._home.clusters),
        }

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """There is only this machine."""
        del cluster
        return ()

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Read the clusters' folders; they are this provider's tags."""
        del locations  # there is only this machine
        found: list[Observed] = []
        folders = sorted(self._home.clusters.iterdir()) if self._home.clusters.is_dir() else []
        for folder in folders:
            things = (storage.pointed_at(folder), registered(folder), ray_driver.started(folder))
            found += [seen for seen in things if seen is not None]
        return [seen for seen in found if cluster is None or seen.cluster == cluster]

    def access(self, cluster: ClusterSpec) -> Access:
        """Tell what a run finds here."""
        return access.of(
            cluster.title,
            machine=registered(self._home.clusters / cluster.title),
            folder=storage.pointed_at(self._home.clusters / cluster.title),
            details=ray_driver.details(self._home.clusters / cluster.title),
        )

    def registry(self, cluster: ClusterSpec) -> Registry:
        """Refuse: what runs here needs no image."""
        raise PreflightError(
            f"cluster {cluster.title!r} is this machine, which runs the trainer without an image",
            remedy="name another cluster with --cluster",
        )

    def guard(self, cluster: ClusterSpec) -> GuardAccess:
        """Refuse: nothing here costs anything."""
        raise PreflightError(f"cluster {cluster.title!r} is this machine, which costs nothing")

    def halt(self, cluster: ClusterSpec) -> Halt:
        """Leave the machine as it is: it costs nothing."""
        del cluster
        return Halt()

    def _storage(self, cluster: ClusterSpec) -> Path:
        default = storage.default_path(self._home.clusters / cluster.title)
        return settings_of(cluster).storage_folder(default)


class MachineDriver:
    """Handles the registration of this machine: a file in the cluster's folder. Its identity is that file."""

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource) -> Observed | None:
        """Read the registration."""
        return registered(self._clusters / resource.name)

    def difference(self, resource: Resource, observed: Observed) -> Difference | None:
        """Compare the hardware; a changed machine is registered anew in place."""
        changed = [
            f"{key} {observed.properties.get(key)!r} -> {value!r}"
            for key, value in resource.properties.items()
            if observed.properties.get(key) != value
        ]
        return Difference(reason=", ".join(changed), in_place=True) if changed else None

    def create(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Write the registration."""
        del token, identities  # one file by one name: writing it again changes nothing
        path = self._clusters / resource.name / "machine.json"
        make_private(path.parent)
        write_atomically(
            path, json.dumps({"properties": dict(resource.properties), "tags": dict(resource.tags)})
        )
        return str(path)

    def change(self, resource: Resource, observed: Observed, *, identities: Mapping[str, str]) -> None:
        """Write the registration anew."""
        del observed, identities
        self.create(resource, token="", identities={})

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Tell whether the registration is there."""
        del kind
        return (Condition.READY if Path(identity).exists() else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the registration; the cluster's folder goes with the storage, which goes last."""
        path = Path(observed.identity)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error

    def verdict(self, error: Exception) -> Verdict:
        """A disk that refuses once refuses again."""
        del error
        return Verdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Say what went wrong."""
        return storage.explain(error)


def registered(cluster_folder: Path) -> Observed | None:
    """Describe the machine registered in a cluster's folder; None when none is."""
    path = cluster_folder / "machine.json"
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        properties, tags = record["properties"], record["tags"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Observed(
        kind=MACHINE,
        name=cluster_folder.name,
        identity=str(path),
        condition=Condition.READY,
        properties=properties,
        tags=tags,
    )


__all__ = ["LocalProvider", "Machine", "MachineDriver"]
