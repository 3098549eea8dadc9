"""The APIs that a cluster needs, which a project has to enable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import Condition, Observed
from cloudrec.providers.gcp import operations
from cloudrec.providers.gcp.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.client import Gcp
    from cloudrec.providers.gcp.layout import Layout

API = "api"
KINDS: Mapping[str, AbstractSet[str]] = {API: frozenset()}

_ENABLED = 2  # State.ENABLED
_ALWAYS = (
    "artifactregistry.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "storage.googleapis.com",
)
_LUSTRE = ("lustre.googleapis.com", "servicenetworking.googleapis.com")


def resources(layout: Layout) -> list[Resource]:
    """Describe what has to be enabled, if the settings let us do it."""
    if not layout.settings.enable_apis:
        return []
    return [layout.resource(API, properties={"services": services(layout)}, is_shared=True)]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by its kind."""
    return {API: ApiDriver(gcp)}


def services(layout: Layout) -> tuple[str, ...]:
    """Return the names of the APIs that this cluster needs."""
    return (*_ALWAYS, *(_LUSTRE if layout.settings.lustre_gib else ()))


def needs(layout: Layout) -> tuple[str, ...]:
    """Return the key of what must be enabled first, where we do it."""
    return (layout.key(API),) if layout.settings.enable_apis else ()


def missing(gcp: Gcp, names: Sequence[str]) -> list[str]:
    """Return those of some APIs that the project has not enabled."""
    answer = gcp.read(
        gcp.client("serviceusage").batch_get_services,
        parent=f"projects/{gcp.project}",
        names=[f"projects/{gcp.project}/services/{name}" for name in names],
    )
    enabled = {row.name.rpartition("/")[2] for row in answer.services if row.state == _ENABLED}
    return [name for name in names if name not in enabled]


class ApiDriver(GcpDriver):
    """Handles what a project has enabled. The identity is the project's path and the APIs' names.

    They are the project's and not the cluster's: others may rely on them, so none is ever disabled.
    """

    kind = API
    deadline_s = 900.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Show none."""
        del cluster
        return []

    def fetch(self, resource: Resource) -> Observed | None:
        """Look whether all are enabled."""
        names = resource.properties["services"]
        if missing(self.gcp, names):
            return None
        return Observed(
            kind=API,
            name=resource.name,
            identity=self._identity(names),
            condition=Condition.READY,
            tags=resource.tags,
            location="global",
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Look whether all are enabled."""
        absent = missing(self.gcp, identity.rpartition("/")[2].split(","))
        return (Condition.PENDING if absent else Condition.READY), f"not enabled: {', '.join(absent)}"

    def make(self, resource: Resource, *, token: str, identities: Mapping[str, str]) -> str:
        """Enable those that are not; a second time, nothing changes."""
        del token, identities
        names = resource.properties["services"]
        wanted = missing(self.gcp, names)
        if not wanted:
            return self._identity(names)
        for name in wanted:
            self.gcp.fresh.add(name)
        usage: Any = self.gcp.client("serviceusage")

        def once() -> str:
            answer = self.gcp.call(
                usage.batch_enable_services, parent=f"projects/{self.gcp.project}", service_ids=wanted
            )
            return operations.of_service("serviceusage", answer.operation.name)

        return self.begin(self._identity(names), once)

    def remove(self, observed: Observed) -> None:
        """Leave them."""
        del observed

    def _identity(self, names: Sequence[str]) -> str:
        return f"projects/{self.gcp.project}/services/{','.join(names)}"
