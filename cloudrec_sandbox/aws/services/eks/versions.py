"""The Kubernetes versions and add-ons that EKS offers.

`kubernetes_support` of /_control: by version, the dates of its release and of the ends of standard and of
extended support. A version that it names has these dates until the reset; the others have Amazon's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.registry import operation, setting
from cloudrec_sandbox.aws.services.eks.state import page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

DEFAULT = "1.35"
# Release, end of standard and of extended support.
_SUPPORT = {
    "1.31": ("2024-09-26", "2025-11-26", "2026-11-26"),
    "1.32": ("2025-01-23", "2026-03-23", "2027-03-23"),
    "1.33": ("2025-05-29", "2026-07-29", "2027-07-29"),
    "1.34": ("2025-10-02", "2026-12-02", "2027-12-02"),
    "1.35": ("2026-01-27", "2027-03-27", "2028-03-27"),
    "1.36": ("2026-06-02", "2027-08-02", "2028-08-02"),
}
_ADDONS = {
    "vpc-cni": ("networking", "v1.21.1-eksbuild.1", "v1.20.4-eksbuild.2"),
    "kube-proxy": ("networking", "v{0}.0-eksbuild.2", "v{0}.0-eksbuild.1"),
    "coredns": ("networking", "v1.13.1-eksbuild.1", "v1.12.4-eksbuild.1"),
    "eks-pod-identity-agent": ("security", "v1.3.10-eksbuild.1", "v1.3.8-eksbuild.2"),
    "aws-ebs-csi-driver": ("storage", "v1.53.0-eksbuild.1", "v1.51.1-eksbuild.1"),
    "aws-fsx-csi-driver": ("storage", "v1.8.0-eksbuild.1", "v1.7.0-eksbuild.1"),
    "aws-mountpoint-s3-csi-driver": ("storage", "v2.2.0-eksbuild.1", "v1.15.0-eksbuild.1"),
    # aws/eks-node-monitoring-agent, charts/eks-node-monitoring-agent/values.yaml and tags.
    "eks-node-monitoring-agent": ("observability", "v1.7.0-eksbuild.1", "v1.6.7-eksbuild.1"),
    "metrics-server": ("observability", "v0.8.0-eksbuild.5", "v0.8.0-eksbuild.2"),
    "amazon-cloudwatch-observability": ("observability", "v4.6.0-eksbuild.1", "v4.5.0-eksbuild.1"),
}


@dataclass
class Support:
    """The dates of each version."""

    days: dict[str, tuple[str, str, str]] = field(default_factory=lambda: dict(_SUPPORT))


def _write(world: World, value: Mapping[str, Sequence[str]]) -> None:
    for version, (released, standard, extended) in value.items():
        if version not in _SUPPORT or not _moment(released) < _moment(standard) < _moment(extended):
            raise ValueError(f"kubernetes_support.{version}: no version of EKS, or no three dates in order")
        world.state(Support).days[version] = released, standard, extended


setting("kubernetes_support", read=lambda world: dict(world.state(Support).days), write=_write)


def status(world: World, version: str) -> str:
    """Return STANDARD_SUPPORT, EXTENDED_SUPPORT or UNSUPPORTED at the virtual time."""
    if version not in _SUPPORT:
        return "UNSUPPORTED"
    _, standard, extended = (_moment(day).timestamp() for day in world.state(Support).days[version])
    if world.now() < standard:
        return "STANDARD_SUPPORT"
    return "EXTENDED_SUPPORT" if world.now() < extended else "UNSUPPORTED"


def offered(world: World) -> list[str]:
    """Return the versions that a cluster can be created with, oldest first."""
    return [version for version in _SUPPORT if status(world, version) != "UNSUPPORTED"]


def addon_versions(name: str, kubernetes: str) -> list[str]:
    """Return an add-on's versions for a Kubernetes version, newest (and default) first; empty if unknown."""
    return [version.format(kubernetes) for version in _ADDONS[name][1:]] if name in _ADDONS else []


@operation("eks", "DescribeClusterVersions")
def describe_cluster_versions(call: Call) -> dict[str, Any]:
    """Return all versions, or the named ones."""
    world, wanted = call.world, call.params.get("clusterVersions")
    rows = []
    for version, days in reversed(world.state(Support).days.items()):
        support = status(world, version)
        wish = call.params.get("versionStatus") or (call.params.get("status") or "").upper()
        shown = version in wanted if wanted else call.params.get("includeAll") or support != "UNSUPPORTED"
        if not shown or (call.params.get("defaultOnly") and version != DEFAULT) or wish not in ("", support):
            continue
        released, standard, extended = map(_moment, days)
        rows.append(
            {
                "clusterVersion": version,
                "clusterType": "eks",
                "defaultPlatformVersion": "eks.9",
                "defaultVersion": version == DEFAULT,
                "releaseDate": released,
                "endOfStandardSupportDate": standard,
                "endOfExtendedSupportDate": extended,
                "status": support.lower().replace("_", "-"),
                "versionStatus": support,
                "kubernetesPatchVersion": f"{version}.2",
            }
        )
    return page(call, "clusterVersions", rows)


@operation("eks", "DescribeAddonVersions")
def describe_addon_versions(call: Call) -> dict[str, Any]:
    """Return add-ons with their versions, for one Kubernetes version or all."""
    one = call.params.get("kubernetesVersion")
    kubernetes = [one] if one else offered(call.world)
    addons = []
    for name, (kind, *_) in _ADDONS.items():
        if call.params.get("addonName") not in (None, name) or kind not in (
            call.params.get("types") or [kind]
        ):
            continue
        compatible: dict[str, list[tuple[str, bool]]] = {}
        for version in kubernetes if set(kubernetes) <= set(_SUPPORT) else []:
            for place, addon in enumerate(addon_versions(name, version)):
                compatible.setdefault(addon, []).append((version, place == 0))
        versions = [_version(name, addon, pairs) for addon, pairs in compatible.items()]
        addons.append(
            {
                "addonName": name,
                "type": kind,
                "addonVersions": versions,
                "publisher": "eks",
                "owner": "aws",
                "defaultNamespace": "kube-system",
            }
        )
    return page(call, "addons", addons)


def _version(name: str, addon: str, pairs: list[tuple[str, bool]]) -> dict[str, Any]:
    return {
        "addonVersion": addon,
        "architecture": ["amd64", "arm64"],
        "computeTypes": ["ec2", "hybrid"],
        "compatibilities": [
            {"clusterVersion": version, "platformVersions": ["*"], "defaultVersion": default}
            for version, default in pairs
        ],
        "requiresConfiguration": False,
        "requiresIamPermissions": name in ("vpc-cni", "aws-ebs-csi-driver", "aws-fsx-csi-driver"),
    }


def _moment(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=UTC)
