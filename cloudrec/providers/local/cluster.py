"""The local provider: `up` registers this machine in a file, so that later commands find a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import (
    TAG_CLUSTER,
    TAG_KEY,
    TAG_OWNER,
    Condition,
    Difference,
    ErrorVerdict,
    Observed,
    Resource,
)
from cloudrec.errors import SpecError
from cloudrec.home import make_private, read_text, storage_error, write_atomically
from cloudrec.providers.base.offers import check_capacity
from cloudrec.providers.local import access, offers, ray_driver, storage
from cloudrec.providers.local import preflight as quota
from cloudrec.providers.local.nodes import LocalHardware, inspect
from cloudrec.providers.local.settings import settings_of
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Driver
    from cloudrec.errors import CloudrecError
    from cloudrec.findings import Finding
    from cloudrec.home import Home
    from cloudrec.providers.base.access import HostAccess, RayAccess
    from cloudrec.providers.base.protocol import Offer
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
        """Validate the settings; SpecError for those that mean other machines than this one."""
        settings_of(cluster)
        check_capacity(cluster)
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
        """Return this machine; `refresh` has no effect."""
        del refresh
        return self.offers(cluster)

    def preflight(self, cluster: ClusterSpec) -> Sequence[Finding]:
        """Check disk, memory, GPUs and the trainer's packages."""
        return quota.findings(settings_of(cluster), self._storage(cluster), inspect())

    def resources(self, cluster: ClusterSpec) -> Sequence[Resource]:
        """Return the storage folder, the machine, and the Ray head if it is requested."""
        name = cluster.title

        def tags(kind: str) -> dict[str, str]:
            return {TAG_CLUSTER: name, TAG_OWNER: cluster.owner, TAG_KEY: f"{kind}/{name}"}

        folder = Resource(
            kind=storage.KIND,
            name=name,
            properties=storage.StorageProperties(path=str(self._storage(cluster))),
            tags=tags(storage.KIND),
            holds_data=True,
            hourly_usd=FREE,
        )
        machine = Resource(
            kind=MACHINE,
            name=name,
            needs=(folder.key,),
            properties=inspect(),
            tags=tags(MACHINE),
            hourly_usd=FREE,
        )
        if not settings_of(cluster).ray:
            return [folder, machine]
        head = Resource(
            kind=ray_driver.KIND, name=name, needs=(folder.key,), tags=tags(ray_driver.KIND), hourly_usd=FREE
        )
        return [folder, machine, head]

    def drivers(self, cluster: ClusterSpec) -> Mapping[str, Driver]:
        """Return kind -> driver."""
        del cluster
        return {
            storage.KIND: storage.StorageDriver(self._home.clusters),
            MACHINE: MachineDriver(self._home.clusters),
            ray_driver.KIND: ray_driver.RayHeadDriver(self._home.clusters),
        }

    def locations(self, cluster: ClusterSpec) -> Sequence[str]:
        """Return none: there is only this machine."""
        del cluster
        return ()

    def search(self, cluster: str | None, *, locations: Sequence[str] = ()) -> Sequence[Observed]:
        """Find the resources of one cluster or of all, in the clusters' folders under CLOUDREC_HOME."""
        del locations  # there is only this machine
        found: list[Observed] = []
        folders = sorted(self._home.clusters.iterdir()) if self._home.clusters.is_dir() else []
        for folder in folders:
            registrations = (storage.pointed_at(folder), registered(folder), ray_driver.started(folder))
            found += [seen for seen in registrations if seen is not None]
        return [seen for seen in found if cluster is None or seen.cluster == cluster]

    def access(self, cluster: ClusterSpec) -> HostAccess | RayAccess:
        """Return the access to this machine; PreflightError if it is not registered."""
        folder = self._home.cluster(cluster.title)
        return access.of(folder, registered(folder))

    def _storage(self, cluster: ClusterSpec) -> Path:
        default = storage.default_path(self._home.cluster(cluster.title))
        return settings_of(cluster).storage_folder(default)


class MachineDriver:
    """The driver of this machine's registration, a file in the cluster's folder. Its identity is the path."""

    deadline_s = 10.0
    poll_s = 0.05

    def __init__(self, clusters: Path) -> None:
        self._clusters = clusters

    def find(self, resource: Resource[LocalHardware]) -> Observed | None:
        """Return the registered machine; None if it is not registered."""
        return registered(self._clusters / resource.name)

    def difference(self, resource: Resource[LocalHardware], observed: Observed) -> Difference | None:
        """Compare the hardware; a changed machine can be registered again in place."""
        changed = [
            f"{key} {observed.properties.get(key)!r} -> {value!r}"
            for key, value in resource.properties.requested().items()
            if observed.properties.get(key) != value
        ]
        return Difference(reason=", ".join(changed), in_place=True) if changed else None

    def create(self, resource: Resource[LocalHardware], *, token: str, identities: Mapping[str, str]) -> str:
        """Write the registration, and return its path."""
        del token, identities  # idempotent: the file has a fixed name
        path = self._clusters / resource.name / "machine.json"
        make_private(path.parent)
        write_atomically(
            path, json.dumps({"properties": resource.properties.requested(), "tags": dict(resource.tags)})
        )
        return str(path)

    def change(
        self, resource: Resource[LocalHardware], observed: Observed, *, identities: Mapping[str, str]
    ) -> None:
        """Write the registration again."""
        del observed, identities
        self.create(resource, token="", identities={})

    def condition(self, kind: str, identity: str) -> tuple[Condition, str]:
        """Return READY if the registration exists, else GONE."""
        del kind
        return (Condition.READY if Path(identity).exists() else Condition.GONE), ""

    def delete(self, observed: Observed) -> None:
        """Remove the registration; the storage, which is deleted last, removes the cluster's folder."""
        path = Path(observed.identity)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise storage_error(path, error) from error

    def verdict(self, error: Exception) -> ErrorVerdict:
        """Return FATAL: errors of the local disk are not transient."""
        del error
        return ErrorVerdict.FATAL

    def explain(self, error: Exception) -> CloudrecError:
        """Return the error as a CloudrecError."""
        return storage.explain(error)


def registered(cluster_folder: Path) -> Observed | None:
    """Return the machine that is registered in a cluster's folder; None if there is none."""
    path = cluster_folder / "machine.json"
    try:
        record = safe_object(read_text(path))
        properties, tags = record["properties"], record["tags"]
        if not (isinstance(properties["gpus"], list) and type(properties["cores"]) is int):
            return None  # damaged: `up` registers the machine again
        tags = {str(name): str(value) for name, value in tags.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return Observed(
        kind=MACHINE,
        name=cluster_folder.name,
        identity=str(path),
        condition=Condition.READY,
        properties=properties,
        tags=tags,
        hourly_usd=FREE,
    )


__all__ = ["LocalHardware", "LocalProvider", "MachineDriver"]
