"""Service Usage v1: the APIs that a project has enabled. A project activates an API once at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from google.cloud.service_usage_v1.types.resources import Service, ServiceConfig, State
from google.cloud.service_usage_v1.types.serviceusage import (
    BatchEnableServicesRequest,
    BatchEnableServicesResponse,
    DisableServiceRequest,
    DisableServiceResponse,
    EnableServiceResponse,
)

from cloudrec_sandbox.gcp.api import projects, schemas
from cloudrec_sandbox.gcp.api.apis import APIS
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, rest
from cloudrec_sandbox.gcp.resources import operations, paging

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.longrunning.operations_pb2 import Operation

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

durations({"serviceusage-change": 10})

_SERVICE = "serviceusage"
_URL = "/v1/projects/{project}/services"
_MOST_ENABLED, _MOST_GOT = 20, 30  # in a batch
# APIs that others need; this stand-in has nothing but their names.
_OTHERS = {
    "autoscaling.googleapis.com": "Cloud Autoscaling API",
    "cloudbuild.googleapis.com": "Cloud Build API",
    "logging.googleapis.com": "Cloud Logging API",
    "monitoring.googleapis.com": "Cloud Monitoring API",
    "oslogin.googleapis.com": "Cloud OS Login API",
    "storage-api.googleapis.com": "Google Cloud Storage JSON API",
    "storage-component.googleapis.com": "Cloud Storage",
}
_TITLES = {api.host: api.title for api in APIS.values()} | _OTHERS


@dataclass
class Changing:
    """The APIs that are being enabled or disabled, as (project, host)."""

    hosts: set[tuple[str, str]] = field(default_factory=set)


def _project(call: Call) -> projects.Project:
    found = projects.find(call.world, call.project)
    if found is None:
        raise GcpError(
            "PERMISSION_DENIED", f"Permission denied to list services for consumer container [{call.project}]"
        )
    return found


def _known(host: str) -> str:
    if host not in _TITLES:
        raise GcpError(
            "PERMISSION_DENIED",
            f"Not found or permission denied for service(s): {host}.",
            reason="SERVICE_CONFIG_NOT_FOUND_OR_PERMISSION_DENIED",
            metadata={"services": host},
        )
    return host


def _service(project: projects.Project, host: str) -> Service:
    return Service(
        name=f"projects/{project.number}/services/{host}",
        parent=f"projects/{project.number}",
        config=ServiceConfig(name=host, title=_TITLES[host]),
        state=State.ENABLED if host in project.apis else State.DISABLED,
    )


@rest(_SERVICE, "services.get", "GET", _URL + "/{host}", permission="serviceusage.services.get")
def get(call: Call) -> Service:
    """Return whether a project has an API enabled."""
    return _service(_project(call), _known(call.params["host"]))


@rest(
    _SERVICE,
    "services.list",
    "GET",
    _URL,
    query=("filter", "pageSize", "pageToken"),
    permission="serviceusage.services.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return all APIs, or with the filter `state:ENABLED` the enabled ones."""
    project, wanted = _project(call), call.query.get("filter", "")
    if wanted not in ("", "state:ENABLED", "state:DISABLED"):
        raise GcpError("INVALID_ARGUMENT", f"The filter '{wanted}' is none of state:ENABLED, state:DISABLED.")
    found = [_service(project, host) for host in sorted(_TITLES)]
    found = [each for each in found if not wanted or f"state:{each.state.name}" == wanted]
    items, token = paging.page(found, call)
    shown = [schemas.shown(each) for each in items]
    return {"services": shown, **({"nextPageToken": token} if token else {})}


@rest(
    _SERVICE,
    "services.batchGet",
    "GET",
    _URL + ":batchGet",
    query=("names",),
    permission="serviceusage.services.get",
)
def batch_get(call: Call) -> dict[str, Any]:
    """Return several APIs."""
    names = parse_qs(urlsplit(call.raw.target).query).get("names", [])
    if len(names) > _MOST_GOT:
        raise GcpError("INVALID_ARGUMENT", f"At most {_MOST_GOT} services can be got at once.")
    project = _project(call)
    found = [_service(project, _known(name.rpartition("/")[2])) for name in names]
    return {"services": [schemas.shown(each) for each in found]}


@rest(
    _SERVICE,
    "services.enable",
    "POST",
    _URL + "/{host}:enable",
    body=dict,
    permission="serviceusage.services.enable",
)
def enable(call: Call) -> Operation:
    """Begin to enable an API."""
    return _begin(call, [_known(call.params["host"])], enabled, on=True)


@rest(
    _SERVICE,
    "services.batchEnable",
    "POST",
    _URL + ":batchEnable",
    body=BatchEnableServicesRequest,
    permission="serviceusage.services.enable",
)
def batch_enable(call: Call) -> Operation:
    """Begin to enable several APIs."""
    hosts = [_known(host) for host in call.body.get("serviceIds", [])]
    if not 1 <= len(hosts) <= _MOST_ENABLED:
        raise GcpError("INVALID_ARGUMENT", f"From 1 to {_MOST_ENABLED} services can be enabled at once.")
    return _begin(call, hosts, batch_enabled, on=True)


@rest(
    _SERVICE,
    "services.disable",
    "POST",
    _URL + "/{host}:disable",
    body=DisableServiceRequest,
    permission="serviceusage.services.disable",
)
def disable(call: Call) -> Operation:
    """Begin to disable an API."""
    return _begin(call, [_known(call.params["host"])], disabled, on=False)


def _begin(call: Call, hosts: Sequence[str], step: Any, *, on: bool) -> Operation:  # noqa: ANN401 - a function
    project, changing = _project(call), call.world.state(Changing).hosts
    if not project.billing and any(host not in _free() for host in hosts):
        raise GcpError(
            "FAILED_PRECONDITION",
            f"Billing account for project '{project.number}' is not found. Billing must be enabled for"
            f" activation of service(s) '{','.join(hosts)}' to proceed.",
            reason="UREQ_PROJECT_BILLING_NOT_FOUND",
            metadata={"services": ",".join(hosts)},
        )
    mine = {(project.id, host) for host in hosts if (host in project.apis) is not on}
    if mine & changing:
        raise GcpError(
            "FAILED_PRECONDITION",
            "Another activation or deactivation is in progress for the service. Please try again later.",
        )
    changing |= mine
    seconds = call.world.duration("serviceusage-change")
    return operations.begin_long(
        call.world, "", seconds=seconds, step=step, arguments=(project.id, tuple(hosts))
    )


def _free() -> set[str]:
    return {api.host for api in APIS.values() if api.free}


def _done(world: World, name: str, hosts: Sequence[str], *, on: bool) -> list[Service]:
    project = projects.find(world, name)
    if project is None:
        raise GcpError("NOT_FOUND", f"Project '{name}' not found.")
    for host in hosts:
        world.state(Changing).hosts.discard((name, host))
        if on:
            projects.enable(world, project, host)
        else:
            projects.disable(project, host)
    return [_service(project, host) for host in hosts]


def enabled(world: World, name: str, hosts: Sequence[str]) -> EnableServiceResponse:
    """Enable an API, which works some seconds later."""
    return EnableServiceResponse(service=_done(world, name, hosts, on=True)[0])


def batch_enabled(world: World, name: str, hosts: Sequence[str]) -> BatchEnableServicesResponse:
    """Enable several APIs, which work some seconds later."""
    return BatchEnableServicesResponse(services=_done(world, name, hosts, on=True))


def disabled(world: World, name: str, hosts: Sequence[str]) -> DisableServiceResponse:
    """Disable an API."""
    return DisableServiceResponse(service=_done(world, name, hosts, on=False)[0])
