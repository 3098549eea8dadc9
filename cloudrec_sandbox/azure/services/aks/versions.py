"""Kubernetes versions that AKS offers.

`kubernetes_versions` of /_control: {"1.37": "preview", ...}, all minor versions instead of the default ones,
each "official", "lts" (for clusters with long-term support alone) or "preview".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.azure.arm.registry import route, setting
from cloudrec_sandbox.azure.arm.store import store
from cloudrec_sandbox.azure.services.aks.refusals import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

OFFICIAL, LONG_TERM, PREVIEW = "official", "lts", "preview"
_OFFERED = {
    "1.32": LONG_TERM,
    "1.33": LONG_TERM,
    "1.34": OFFICIAL,
    "1.35": OFFICIAL,
    "1.36": OFFICIAL,
    "1.37": PREVIEW,
}
_PATCHES = ("1", "3")
_LTS_PLAN = "AKSLongTermSupport"
_BEHIND = 3  # minor versions that a pool may be behind its cluster


@dataclass
class Offered:
    """Minor versions with their state."""

    minors: dict[str, str] = field(default_factory=lambda: dict(_OFFERED))


def default(world: World) -> str:
    """Return the minor version of a cluster that names none: the second newest official one."""
    official = [name for name, state in world.state(Offered).minors.items() if state == OFFICIAL]
    return sorted(official, key=_number)[max(len(official) - 2, 0)]


def resolved(world: World, version: str, cluster: str, *, plan: str = "") -> str:
    """Return the whole version for "1.35" or "1.35.3"; ArmError if it is not offered."""
    minor = ".".join(version.split(".")[:2])
    state = world.state(Offered).minors.get(minor)
    if state is None or (version != minor and version not in patches(minor)):
        raise invalid(
            f"Managed cluster {cluster} is on version {version}, which is not supported in this region. "
            f"Please use "
            "[az aks get-versions] command to get the supported version list in this region. For more "
            "information, "
            "please check https://aka.ms/supported-version-list",
            "K8sVersionNotSupported",
        )
    if state == LONG_TERM and plan != _LTS_PLAN:
        raise invalid(
            f"Managed cluster {cluster} is on version {version} which is only available for Long-Term "
            f"Support (LTS). "
            "If you intend to onboard to LTS, please ensure the cluster is in Premium tier and LTS support "
            "plan.",
            "K8sVersionNotSupported",
        )
    return version if version != minor else patches(minor)[-1]


def check_upgrade(old: str, new: str) -> None:
    """Refuse a downgrade, and an upgrade that skips a minor version."""
    if _number(new) < _number(old):
        raise invalid(
            f"Upgrading Kubernetes version {old} to {new} is not allowed: downgrades are not supported.",
            "OperationNotAllowed",
        )
    # Kubernetes upgrades its control plane by one minor version at a time.
    if _number(new)[1] - _number(old)[1] > 1:
        following = f"{_number(old)[0]}.{_number(old)[1] + 1}"
        raise invalid(
            f"Upgrading Kubernetes version from {old} to {new} is not allowed. Available upgrades: "
            f"{following}. See "
            "https://aka.ms/aks-supported-k8s-ver for version details.",
            "OperationNotAllowed",
        )


def check_pool(pool: str, version: str, cluster: str) -> None:
    """Refuse a pool that is newer than its cluster, or too far behind."""
    ahead = _number(version) > _number(cluster)
    if ahead or _number(cluster)[1] - _number(version)[1] > _BEHIND:
        raise invalid(
            f"Node pool version {version} and control plane version {cluster} are incompatible. Minor "
            f"version of node "
            f"pool cannot be more than {_BEHIND} versions less than control plane's version, nor greater "
            f"than it. "
            f"(agent pool {pool}) For more information, please check https://aka.ms/aks/UpgradeVersionRules.",
            "NodePoolMcVersionIncompatible",
        )


def patches(minor: str) -> list[str]:
    """Return the whole versions of a minor version, the latest last."""
    return [f"{minor}.{patch}" for patch in _PATCHES]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def upgrades(world: World, version: str) -> list[str]:
    """Return the versions that a version can be upgraded to."""
    minors = world.state(Offered).minors
    major, minor = _number(version)[:2]
    wanted = [name for name in (f"{major}.{minor}", f"{major}.{minor + 1}") if name in minors]
    return [each for name in wanted for each in patches(name) if _number(each) > _number(version)]


@route("GET", "Microsoft.ContainerService/locations/kubernetesVersions")
def listing(call: Call) -> dict[str, Any]:
    """Return the versions that a region offers."""
    rows = []
    for minor, state in call.world.state(Offered).minors.items():
        plans = ["KubernetesOfficial"] if state != LONG_TERM else []
        row: dict[str, Any] = {
            "version": minor,
            "capabilities": {"supportPlan": [*plans, _LTS_PLAN]},
            "patchVersions": {each: {"upgrades": upgrades(call.world, each)} for each in patches(minor)},
        }
        row |= {"isPreview": True} if state == PREVIEW else {}
        row |= {"isDefault": True} if minor == default(call.world) else {}
        rows.append(row)
    return {"values": rows}


@route("GET", "Microsoft.ContainerService/managedClusters/upgradeProfiles")
def upgrade_profile(call: Call) -> dict[str, Any]:
    """Return the versions that a cluster can be upgraded to."""
    cluster = store(call.world).find(call.path.parent)
    if cluster is None:
        raise invalid(f"There is no cluster {call.path.parent}.", "ResourceNotFound")
    version = cluster.properties["currentKubernetesVersion"]
    items = [{"kubernetesVersion": each} for each in upgrades(call.world, version)]
    return {
        "id": call.path.text,
        "name": "default",
        "type": "Microsoft.ContainerService/managedClusters/upgradeProfiles",
        "properties": {
            "controlPlaneProfile": {"kubernetesVersion": version, "osType": "Linux", "upgrades": items},
            "agentPoolProfiles": [],
        },
    }


def _write(world: World, wishes: Mapping[str, str]) -> None:
    if bad := [state for state in wishes.values() if state not in (OFFICIAL, LONG_TERM, PREVIEW)]:
        raise ValueError(f"state {bad[0]!r} is none of {OFFICIAL}, {LONG_TERM}, {PREVIEW}")
    world.state(Offered).minors = dict(wishes)


setting("kubernetes_versions", read=lambda world: dict(world.state(Offered).minors), write=_write)
