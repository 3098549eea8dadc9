"""The Google APIs that a cluster needs, and that its project must enable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.engine.graph import Condition, Observed, Properties
from cloudrec.providers.gcp.api import operations, sdk
from cloudrec.providers.gcp.api.driver import GcpDriver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.layout import GcpLayout

API = "api"
KINDS: Mapping[str, AbstractSet[str]] = {API: frozenset()}

# Without these `up` cannot plan, and so not enable the others. A new project has none of them: "Services
# enabled by default" of docs.cloud.google.com/service-usage/docs/enabled-service.
BASE = (
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
)
USAGE = "serviceusage.googleapis.com"
_ALWAYS = (
    *BASE,
    "artifactregistry.googleapis.com",
    "containerfilesystem.googleapis.com",  # without it, nodes wait until an image is pulled whole
    "storage.googleapis.com",
)
_ENDING = ("cloudscheduler.googleapis.com",)
_MOVING = ("workflowexecutions.googleapis.com", "workflows.googleapis.com")
_LUSTRE = ("lustre.googleapis.com", "servicenetworking.googleapis.com")


@dataclass(frozen=True, kw_only=True)
class ApiProperties(Properties):
    """The requested properties of a project's APIs.

    Attributes:
        services: the names of the APIs that are enabled: "compute.googleapis.com".
    """

    services: tuple[str, ...]


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the APIs to enable; nothing if the setting enable_apis is false."""
    if not layout.settings.enable_apis:
        return []
    return [
        layout.resource(
            API, properties=ApiProperties(services=services(layout)), is_shared=True, hourly_usd=FREE
        )
    ]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {API: ApiDriver(gcp)}


def services(layout: GcpLayout) -> tuple[str, ...]:
    """Return the names of the APIs that this cluster needs."""
    return (
        *_ALWAYS,
        *(_ENDING if layout.cluster.expires else ()),
        *(_MOVING if layout.is_end_movable else ()),
        *(_LUSTRE if layout.settings.lustre_gib else ()),
    )


def needs(layout: GcpLayout) -> tuple[str, ...]:
    """Return the key of the APIs' resource; empty if the setting enable_apis is false."""
    return (layout.key(API),) if layout.settings.enable_apis else ()


def missing(gcp: Gcp, names: Sequence[str]) -> list[str]:
    """Return the given APIs that the project has not enabled."""
    request = sdk.service_usage.BatchGetServicesRequest(
        parent=f"projects/{gcp.project}",
        names=[f"projects/{gcp.project}/services/{name}" for name in names],
    )
    answer = gcp.read(gcp.rest(sdk.service_usage.ServiceUsageClient).batch_get_services, request)
    state = sdk.service_usage.State
    enabled = {row.name.rpartition("/")[2] for row in answer.services if row.state == state.ENABLED}
    return [name for name in names if name not in enabled]


class ApiDriver(GcpDriver[ApiProperties]):
    """Handles the enabled APIs of a project. The identity is PROJECT/services/NAME,NAME.

    The APIs belong to the project, and other workloads may use them, so that none is ever disabled.
    """

    kind = API
    deadline_s = 900.0

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return nothing: the APIs belong to no cluster."""
        del cluster
        return []

    def fetch(self, resource: Resource[ApiProperties]) -> Observed | None:
        """Return the resource if all its APIs are enabled, else None."""
        names = resource.properties.services
        if missing(self.gcp, names):
            return None
        return Observed(
            kind=API,
            name=resource.name,
            identity=self._identity(names),
            condition=Condition.READY,
            tags=resource.tags,
            location="global",
            hourly_usd=FREE,
        )

    def look(self, identity: str) -> tuple[Condition, str]:
        """Return READY once all APIs are enabled, else PENDING with the names of the others."""
        absent = missing(self.gcp, identity.rpartition("/")[2].split(","))
        return (Condition.PENDING if absent else Condition.READY), f"not enabled: {', '.join(absent)}"

    def make(self, resource: Resource[ApiProperties], *, token: str, identities: Mapping[str, str]) -> str:
        """Enable the missing APIs; a repeated call changes nothing."""
        del token, identities
        names = resource.properties.services
        wanted = missing(self.gcp, names)
        if not wanted:
            return self._identity(names)
        # Google may refuse calls of a new API for minutes, as if it were disabled: those are repeated.
        for name in wanted:
            self.gcp.fresh.add(name)
        usage = self.gcp.rest(sdk.service_usage.ServiceUsageClient)
        request = sdk.service_usage.BatchEnableServicesRequest(
            parent=f"projects/{self.gcp.project}", service_ids=wanted
        )

        def once() -> str:
            begun = self.gcp.call(usage.batch_enable_services, request)
            return operations.of_service("serviceusage", begun)

        return self.begin(self._identity(names), once)

    def remove(self, observed: Observed) -> None:
        """Do nothing: other workloads of the project may use the APIs."""
        del observed

    def _identity(self, names: Sequence[str]) -> str:
        return f"projects/{self.gcp.project}/services/{','.join(names)}"
