"""Devices that a cluster gives by dynamic resource allocation (DRA), where it has no device plugin for them.

A driver lists the devices of each node in ResourceSlices, and a pod claims some of a DeviceClass. A node does
not show them among its allocatable resources. `with_devices` adds them there by the name that the plugin
would use, so that checks count both kinds alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.client.target import DeviceClaim

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube

_API = "resource.k8s.io/v1"
_CLASS, _SLICE, _CLAIM = (f"{_API}/{kind}" for kind in ("DeviceClass", "ResourceSlice", "ResourceClaim"))
TEMPLATE = f"{_API}/ResourceClaimTemplate"
# NVIDIA's driver for DRA (kubernetes-sigs/dra-driver-nvidia-gpu): class and driver have the same name; parts
# of a GPU (MIG) are devices of it, too, of another type.
GPUS = DeviceClaim(resource="nvidia.com/gpu", device_class="gpu.nvidia.com", driver="gpu.nvidia.com")
_WHOLE = "gpu"


def given(
    kube: Kube, nodes: Iterable[Mapping[str, Any]], sources: Sequence[DeviceClaim]
) -> tuple[DeviceClaim, ...]:
    """Return the devices that the cluster gives by DRA and no node by a plugin.

    Args:
        kube: the cluster.
        nodes: its nodes, as the API server lists them.
        sources: the devices that could be given so.
    """
    by_plugin = {name for node in nodes for name, value in _allocatable(node).items() if str(value) != "0"}
    left = [each for each in sources if each.resource not in by_plugin]
    if not left or not kube.kinds.has(_CLASS):
        return ()
    try:
        classes = {each["metadata"]["name"] for each in kube.list(_CLASS)}
        drivers = {each["spec"]["driver"] for each in kube.list(_SLICE)}
    except DeniedError:
        return ()  # without the right to read them, the cluster's nodes have no such device
    return tuple(each for each in left if each.device_class in classes and each.driver in drivers)


def with_devices(
    kube: Kube, nodes: Sequence[dict[str, Any]], claims: Sequence[DeviceClaim]
) -> list[dict[str, Any]]:
    """Return nodes with the devices of their ResourceSlices among the capacity and what can be allocated."""
    if not claims:
        return list(nodes)
    counts: dict[str, dict[str, int]] = {}
    for claim in claims:
        for node, _, devices in _slices(kube, claim):
            own = counts.setdefault(node, {})
            own[claim.resource] = own.get(claim.resource, 0) + devices
    return [_added(node, counts.get(node["metadata"]["name"], {})) for node in nodes]


def held(kube: Kube, claims: Sequence[DeviceClaim], *, run: str) -> dict[str, dict[str, float]]:
    """Return how many of the devices pods hold, by node and resource; without those of one run's pods."""
    found: dict[str, dict[str, float]] = {}
    if not claims:
        return found
    places = {
        (claim.driver, pool): (node, claim) for claim in claims for node, pool, _ in _slices(kube, claim)
    }
    for each in kube.list(_CLAIM):
        status = each.get("status") or {}
        users = [str(user.get("name", "")) for user in status.get("reservedFor") or ()]
        if users and all(user.startswith(f"{run}-") for user in users):
            continue
        devices = (status.get("allocation") or {}).get("devices") or {}
        for result in devices.get("results") or ():
            if place := places.get((result.get("driver"), result.get("pool"))):
                node, claim = place
                own = found.setdefault(node, {})
                own[claim.resource] = own.get(claim.resource, 0.0) + 1
    return found


def _slices(kube: Kube, claim: DeviceClaim) -> Iterator[tuple[str, str, int]]:
    """Yield node, pool and number of devices of each present slice of a driver."""
    rows = [each["spec"] for each in kube.list(_SLICE) if each["spec"].get("driver") == claim.driver]
    newest: dict[str, int] = {}
    for row in rows:
        pool = row["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    for row in rows:
        pool = row["pool"]
        if row.get("nodeName") and pool["generation"] == newest[pool["name"]]:
            devices = row.get("devices") or ()
            yield row["nodeName"], pool["name"], sum(_is_whole(each) for each in devices)


def _is_whole(device: Mapping[str, Any]) -> bool:
    kind = (device.get("attributes") or {}).get("type") or {}
    return bool(kind.get("string", _WHOLE) == _WHOLE)


def _added(node: dict[str, Any], counts: Mapping[str, int]) -> dict[str, Any]:
    if not counts:
        return node
    status = node.get("status") or {}
    more = {name: str(count) for name, count in counts.items()}
    shown = {part: {**(status.get(part) or {}), **more} for part in ("capacity", "allocatable")}
    return {**node, "status": {**status, **shown}}


def _allocatable(node: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (node.get("status") or {}).get("allocatable") or {}
    return found
