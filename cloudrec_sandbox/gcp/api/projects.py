"""Projects, and the services enabled in them.

`apis` of /_control: {"container.googleapis.com": false} disables at once, true enables at once, in the
project that clients use. `project`: {"state": "DELETE_REQUESTED", "billing": false} changes that project;
{"new": true} leaves it only the APIs that Google enables in a new one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import apis
from cloudrec_sandbox.gcp.api.apis import APIS
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import durations, setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.world import World

HOME, NUMBER = apis.HOME, apis.NUMBER
_STATES = ("ACTIVE", "DELETE_REQUESTED")

durations({"api-activation": 30})  # until a newly enabled API works


@dataclass
class Project:
    """One project; `apis` has the moment from which each enabled API works, by host."""

    id: str
    number: str
    name: str
    state: str = "ACTIVE"
    billing: bool = True
    apis: dict[str, float] = field(default_factory=dict)


def _home() -> dict[str, Project]:
    apis = {api.host: 0.0 for api in APIS.values() if not api.dormant}
    return {HOME: Project(id=HOME, number=NUMBER, name="Sandbox", apis=apis)}


@dataclass
class Projects:
    """All projects that the caller can see, by id."""

    projects: dict[str, Project] = field(default_factory=_home)


def find(world: World, name: str) -> Project | None:
    """Return the project with an id or a number; None if there is none."""
    projects = world.state(Projects).projects
    return projects.get(name) or next((each for each in projects.values() if each.number == name), None)


def home(world: World) -> Project:
    """Return the project that clients use."""
    return world.state(Projects).projects[HOME]


def enable(world: World, project: Project, host: str) -> None:
    """Enable an API; it works some seconds later."""
    project.apis.setdefault(host, world.now() + world.duration("api-activation"))


def disable(project: Project, host: str) -> None:
    """Disable an API at once."""
    project.apis.pop(host, None)


def check(world: World, service: str, name: str) -> Project:
    """Return the project that a call of a service counts for; GcpError if it cannot be used."""
    api = APIS[service]
    project = find(world, name)
    if project is None:
        if api.classic:
            raise GcpError("NOT_FOUND", f"The resource 'projects/{name}' was not found")
        raise _refused(f"Permission denied on resource project {name}.", "CONSUMER_INVALID", service, name)
    if project.state != "ACTIVE":
        text = f"Project #{project.number} has been deleted."
        raise _refused(text, "CONSUMER_INVALID", service, project.number)
    if not project.apis.get(api.host, float("inf")) <= world.now():
        raise _disabled(service, project)
    if not project.billing and not api.free:
        text = (
            f"This API method requires billing to be enabled. Please enable billing on project"
            f" #{project.number} by visiting https://console.developers.google.com/billing/enable?project="
            f"{project.number} then retry. If you enabled billing for this project recently, wait a few"
            " minutes for the action to propagate to our systems and retry."
        )
        raise _refused(text, "BILLING_DISABLED", service, project.number)
    return project


def _disabled(service: str, project: Project) -> GcpError:
    api = APIS[service]
    url = f"https://console.developers.google.com/apis/api/{api.host}/overview?project={project.number}"
    text = (
        f"{api.title} has not been used in project {project.number} before or it is disabled. Enable it by"
        f" visiting {url} then retry. If you enabled this API recently, wait a few minutes for the action to"
        " propagate to our systems and retry."
    )
    return _refused(text, "SERVICE_DISABLED", service, project.number, activationUrl=url)


_CLASSIC = {"SERVICE_DISABLED": "accessNotConfigured"}


def _refused(message: str, reason: str, service: str, consumer: str, **more: str) -> GcpError:
    api = APIS[service]
    metadata = {"service": api.host, "consumer": f"projects/{consumer}", "serviceTitle": api.title, **more}
    classic = _CLASSIC.get(reason, "forbidden")
    return GcpError("PERMISSION_DENIED", message, reason=reason, classic=classic, metadata=metadata)


def _write_apis(world: World, wishes: Mapping[str, bool]) -> None:
    hosts = {api.host for api in APIS.values()}
    if unknown := sorted(set(wishes) - hosts):
        raise ValueError(f"unknown API {', '.join(unknown)}; there are: {', '.join(sorted(hosts))}")
    project = home(world)
    for host, wanted in wishes.items():
        disable(project, host)
        if wanted:
            project.apis[host] = world.now()


def _write_project(world: World, wishes: Mapping[str, Any]) -> None:
    if unknown := sorted(set(wishes) - {"state", "billing", "new"}):
        raise ValueError(f"a project has no {', '.join(unknown)}; it has: billing, new, state")
    if wishes.get("state", "ACTIVE") not in _STATES:
        raise ValueError(f"state {wishes['state']!r} is none of {', '.join(_STATES)}")
    project = home(world)
    project.state = wishes.get("state", project.state)
    project.billing = bool(wishes.get("billing", project.billing))
    if wishes.get("new"):
        # "Services enabled by default": docs.cloud.google.com/service-usage/docs/enabled-service
        project.apis = {api.host: 0.0 for api in APIS.values() if api.default}


setting(
    "apis",
    read=lambda world: {host: moment <= world.now() for host, moment in home(world).apis.items()},
    write=_write_apis,
)
setting(
    "project",
    read=lambda world: {"state": home(world).state, "billing": home(world).billing},
    write=_write_project,
)
