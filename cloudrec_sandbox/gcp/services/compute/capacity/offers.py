"""Compute's lists: regions and zones with their quotas, machine types, accelerator types, the project."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging, store
from cloudrec_sandbox.gcp.resources.places import REGIONS, ZONES
from cloudrec_sandbox.gcp.services.compute import collections
from cloudrec_sandbox.gcp.services.compute.capacity import quotas
from cloudrec_sandbox.gcp.services.compute.capacity.catalogue import (
    ACCELERATORS,
    Accelerator,
    Machine,
    find,
    offered,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

    Row = Callable[[str, str, Any], dict[str, Any]]

_FRONT = "/compute/v1/projects/{project}"
_BORN = "1969-12-31T16:00:00.000-08:00"
_MIB = 1024


def _document(path: str, kind: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    return {
        "kind": f"compute#{kind}",
        "id": str(zlib.crc32(path.encode())),
        "creationTimestamp": _BORN,
        "name": path.rpartition("/")[2],
        "selfLink": store.link(path),
        **more,
    }


def _quotas(world: World, place: str) -> list[dict[str, Any]]:
    rows = quotas.rows(world, place)
    return [{"metric": metric, "limit": most, "usage": used} for metric, most, used in rows]


def _region(world: World, project: str, name: str) -> dict[str, Any]:
    zones = [store.link(f"projects/{project}/zones/{zone}") for zone in REGIONS[name]]
    path = f"projects/{project}/regions/{name}"
    more = {"description": name, "status": "UP", "zones": zones, "quotas": _quotas(world, name)}
    return _document(path, "region", **more)


def _zone(world: World, project: str, name: str) -> dict[str, Any]:
    del world
    region = store.link(f"projects/{project}/regions/{ZONES[name]}")
    path = f"projects/{project}/zones/{name}"
    return _document(path, "zone", description=name, status="UP", region=region)


def _machine_type(project: str, zone: str, machine: Machine) -> dict[str, Any]:
    more: dict[str, Any] = {
        "description": f"{machine.vcpus} vCPUs, {machine.memory_gb:g} GB RAM",
        "guestCpus": machine.vcpus,
        "memoryMb": int(machine.memory_gb * _MIB),
        "zone": zone,
        "architecture": "X86_64",
        "isSharedCpu": machine.name in ("e2-micro", "e2-small", "e2-medium"),
        "maximumPersistentDisks": 128,
        "maximumPersistentDisksSizeGb": "263168",
    }
    if machine.accelerator:
        gpus = {
            "guestAcceleratorType": machine.accelerator,
            "guestAcceleratorCount": machine.accelerators,
        }
        more["accelerators"] = [gpus]
    if machine.local_ssds:
        more["bundledLocalSsds"] = {"defaultInterface": "NVME", "partitionCount": machine.local_ssds}
    return _document(f"projects/{project}/zones/{zone}/machineTypes/{machine.name}", "machineType", **more)


def _accelerator_type(project: str, zone: str, accelerator: Accelerator) -> dict[str, Any]:
    more = {
        "description": accelerator.description,
        "zone": store.link(f"projects/{project}/zones/{zone}"),
        "maximumCardsPerInstance": max(accelerator.attachable, default=16),
    }
    path = f"projects/{project}/zones/{zone}/acceleratorTypes/{accelerator.name}"
    return _document(path, "acceleratorType", **more)


@rest("compute", "projects.get", "GET", _FRONT, permission="compute.projects.get")
def get_project(call: Call) -> dict[str, Any]:
    """Return the project as Compute shows it, with the quotas that belong to no region."""
    project = projects.find(call.world, call.project)
    if project is None:
        raise GcpError("NOT_FOUND", f"The resource 'projects/{call.project}' was not found")
    return _document(
        f"projects/{project.id}",
        "project",
        quotas=_quotas(call.world, quotas.GLOBAL),
        defaultServiceAccount=f"{project.number}-compute@developer.gserviceaccount.com",
        xpnProjectStatus="UNSPECIFIED_XPN_PROJECT_STATUS",
        defaultNetworkTier="PREMIUM",
    )


def _lookup(call: Call, look: Callable[[World, str, str], dict[str, Any]], known: Any) -> dict[str, Any]:  # noqa: ANN401 - a mapping by name
    if call.params["name"] not in known:
        raise GcpError(
            "NOT_FOUND", f"The resource '{call.raw.path.removeprefix('/compute/v1/')}' was not found"
        )
    return look(call.world, call.project, call.params["name"])


@rest("compute", "regions.get", "GET", _FRONT + "/regions/{name}", permission="compute.regions.get")
def get_region(call: Call) -> dict[str, Any]:
    """Return one region with its quotas."""
    return _lookup(call, _region, REGIONS)


@rest("compute", "zones.get", "GET", _FRONT + "/zones/{name}", permission="compute.zones.get")
def get_zone(call: Call) -> dict[str, Any]:
    """Return one zone."""
    return _lookup(call, _zone, ZONES)


@rest(
    "compute",
    "regions.list",
    "GET",
    _FRONT + "/regions",
    query=paging.QUERY,
    permission="compute.regions.list",
)
def list_regions(call: Call) -> dict[str, Any]:
    """Return all regions."""
    return collections.listing(
        call, "region", [_region(call.world, call.project, name) for name in sorted(REGIONS)]
    )


@rest("compute", "zones.list", "GET", _FRONT + "/zones", query=paging.QUERY, permission="compute.zones.list")
def list_zones(call: Call) -> dict[str, Any]:
    """Return all zones."""
    return collections.listing(
        call, "zone", [_zone(call.world, call.project, name) for name in sorted(ZONES)]
    )


def _machines(call: Call, zone: str) -> list[dict[str, Any]]:
    return [_machine_type(call.project, zone, machine) for machine in offered(zone)]


def _accelerators(call: Call, zone: str) -> list[dict[str, Any]]:
    there = [each for name, each in sorted(ACCELERATORS.items()) if zone in each.zones]
    return [_accelerator_type(call.project, zone, each) for each in there]


@rest(
    "compute",
    "machineTypes.get",
    "GET",
    _FRONT + "/zones/{zone}/machineTypes/{name}",
    permission="compute.machineTypes.get",
)
def get_machine_type(call: Call) -> dict[str, Any]:
    """Return one machine type of a zone that offers it."""
    collections.place_exists(call)
    machine = find(call.params["name"], call.params["zone"])
    if machine is None:
        raise GcpError(
            "NOT_FOUND", f"The resource '{call.raw.path.removeprefix('/compute/v1/')}' was not found"
        )
    return _machine_type(call.project, call.params["zone"], machine)


@rest(
    "compute",
    "acceleratorTypes.get",
    "GET",
    _FRONT + "/zones/{zone}/acceleratorTypes/{name}",
    permission="compute.acceleratorTypes.get",
)
def get_accelerator_type(call: Call) -> dict[str, Any]:
    """Return one accelerator type of a zone that offers it."""
    collections.place_exists(call)
    accelerator = ACCELERATORS.get(call.params["name"])
    if accelerator is None or call.params["zone"] not in accelerator.zones:
        raise GcpError(
            "NOT_FOUND", f"The resource '{call.raw.path.removeprefix('/compute/v1/')}' was not found"
        )
    return _accelerator_type(call.project, call.params["zone"], accelerator)


def _lists(name: str, noun: str, rows: Callable[[Call, str], list[dict[str, Any]]]) -> None:
    permission = f"compute.{name}.list"

    @rest(
        "compute",
        f"{name}.list",
        "GET",
        f"{_FRONT}/zones/{{zone}}/{name}",
        query=paging.QUERY,
        permission=permission,
    )
    def list_(call: Call) -> dict[str, Any]:
        collections.place_exists(call)
        return collections.listing(call, noun, rows(call, call.params["zone"]))

    @rest(
        "compute",
        f"{name}.aggregatedList",
        "GET",
        f"{_FRONT}/aggregated/{name}",
        query=(*paging.QUERY, "includeAllScopes", "serviceProjectNumber"),
        permission=permission,
    )
    def aggregated(call: Call) -> dict[str, Any]:
        found = [(f"zones/{zone}", row) for zone in ZONES for row in rows(call, zone)]
        return collections.aggregate(call, noun, name, found)

    del list_, aggregated


_lists("machineTypes", "machineType", _machines)
_lists("acceleratorTypes", "acceleratorType", _accelerators)
