"""Features that Google accepts in a request and that may do nothing; `effects` of /_control has the others.

{"image_streaming": [pools whose containers start before their image is whole],
 "lustre": [instances that machines of their network can mount]}
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.registry import setting
from cloudrec_sandbox.gcp.resources import store
from cloudrec_sandbox.gcp.services.gke.state import Gke
from cloudrec_sandbox.gcp.services.iam import policies
from cloudrec_sandbox.gcp.services.lustre.instances import Lustre

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.gcp.api.world import World

_STREAMING = "containerfilesystem.googleapis.com"
# The ports of Lustre's clients ("Create a VPC network", Managed Lustre's documentation).
_PORTS = (988, 6988)


def _streaming(world: World) -> list[str]:
    """Return the pools that stream: the API is enabled, and their account may use services of the project.

    See "Use Image streaming to pull container images", GKE's documentation.
    """
    found = []
    for cluster in world.state(Gke).clusters.values():
        project = projects.find(world, cluster.project)
        is_enabled = project is not None and project.apis.get(_STREAMING, world.now() + 1) <= world.now()
        for pool in cluster.pools.values():
            config = pool.message.config
            who = f"serviceAccount:{config.service_account}"
            may = policies.allows(world, f"projects/{cluster.project}", who, "serviceusage.services.use")
            if is_enabled and may and config.gcfs_config.enabled:
                found.append(f"{cluster.path}/nodePools/{pool.name}")
    return found


def _mountable(world: World) -> list[str]:
    """Return the instances whose servers reach the clients: a rule of the network admits their addresses."""
    return [
        name
        for name, instance in world.state(Lustre).instances.items()
        if _admits(world, instance.network, str(instance.mount_point).partition("@")[0])
    ]


def _admits(world: World, network: str, address: str) -> bool:
    if not address:
        return False
    rules = [
        row.document
        for row in store.within(world, "compute", "projects/", "firewalls")
        if store.path_of(row.document["network"]) == network
    ]
    return all(any(_opens(rule, address, port) for rule in rules) for port in _PORTS)


def _opens(rule: Mapping[str, Any], address: str, port: int) -> bool:
    if rule.get("disabled") or rule.get("direction") != "INGRESS":
        return False
    inside = any(
        ipaddress.ip_address(address) in ipaddress.ip_network(block) for block in rule.get("sourceRanges", ())
    )
    return inside and any(_is_open(each, port) for each in rule.get("allowed", ()))


def _is_open(allowed: Mapping[str, Any], port: int) -> bool:
    protocol, ports = allowed.get("IPProtocol"), allowed.get("ports") or ()
    return protocol == "all" or (protocol in ("tcp", "6") and (not ports or _within(ports, port)))


def _within(ports: Iterable[str], port: int) -> bool:
    ends = [each.partition("-") for each in ports]
    return any(int(first) <= port <= int(last or first) for first, _, last in ends)


def _refuse(_world: World, _wish: object) -> None:
    raise ValueError("effects can only be read")


setting(
    "effects",
    read=lambda world: {"image_streaming": _streaming(world), "lustre": _mountable(world)},
    write=_refuse,
)
