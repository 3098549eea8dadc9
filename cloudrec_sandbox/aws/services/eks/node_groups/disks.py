"""What nodeadm makes of a node's NodeConfig: its disks, what pods can request, and what it refuses.

By nodeadm's API reference (awslabs/amazon-eks-ami, nodeadm/doc/api.md): `instance.localStorage.strategy` is
RAID0, RAID10 or Mount. With RAID0 and RAID10 the folders of the kubelet, of containerd and of the pods' logs
are on the array of all instance store volumes, so it is the node's ephemeral storage; `disabledMounts` can
leave out Containerd and PodLogs. With Mount each volume is mounted by itself, and ephemeral storage stays on
the root volume. `featureGates` takes InstanceIdNodeName and FastImagePull, true or false.
"""

from __future__ import annotations

import base64
import json
from email.parser import BytesParser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

STRATEGIES = ("RAID0", "RAID10", "Mount")
DISABLED_MOUNTS = ("Containerd", "PodLogs")
FEATURE_GATES = ("InstanceIdNodeName", "FastImagePull")
_CONTENT = "application/node.eks.aws"
_ROOT_GIB = 20  # of a node group's root volume ("diskSize", CreateNodegroup)
_GB, _GIB = 10**9, 2**30
# The kubelet's default for nodefs.available keeps a tenth free; nodeadm reserves 1Gi of ephemeral storage.
_FREE_SHARE, _RESERVED_GIB = 0.1, 1


def ephemeral_gib(group: Mapping[str, Any], template: Mapping[str, Any], kind: Mapping[str, Any]) -> int:
    """Return the GiB of ephemeral storage that pods can request on a node.

    Args:
        group: the node group's document.
        template: the data of its launch template.
        kind: the row of its instance type in DescribeInstanceTypes.
    """
    total = kind.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0) * _GB / _GIB
    strategy = strategy_of(template)
    gib = {"RAID0": total, "RAID10": total / 2}.get(strategy) if total else None
    if gib is None:
        volumes = [
            each.get("Ebs", {}).get("VolumeSize") for each in template.get("BlockDeviceMappings") or ()
        ]
        gib = float(next((size for size in volumes if size), None) or group.get("diskSize") or _ROOT_GIB)
    return int(gib * (1 - _FREE_SHARE) - _RESERVED_GIB)


def strategy_of(template: Mapping[str, Any]) -> str:
    """Return the strategy for local storage in a template's NodeConfig; empty if it has none."""
    for config in _configs(template):
        storage = ((config.get("spec") or {}).get("instance") or {}).get("localStorage") or {}
        if storage.get("strategy"):
            return str(storage["strategy"])
    return ""


def problem(template: Mapping[str, Any]) -> str:
    """Return what nodeadm refuses of a template's NodeConfig, with which no node joins; empty for nothing."""
    for config in _configs(template):
        spec = config.get("spec") or {}
        for gate, value in (spec.get("featureGates") or {}).items():
            if gate not in FEATURE_GATES:
                return f"featureGates: Unsupported value: {gate!r}"
            if not isinstance(value, bool):
                return f"featureGates.{gate}: Invalid value: {value!r}: must be a boolean"
        storage = (spec.get("instance") or {}).get("localStorage") or {}
        if "strategy" in storage and storage["strategy"] not in STRATEGIES:
            return f"localStorage.strategy: Unsupported value: {storage['strategy']!r}"
        for mount in storage.get("disabledMounts") or ():
            if mount not in DISABLED_MOUNTS:
                return f"localStorage.disabledMounts: Unsupported value: {mount!r}"
    return ""


def _configs(template: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the NodeConfigs of a template's user data; JSON alone is read, which is valid YAML."""
    text = template.get("UserData")
    if not text:
        return
    message = BytesParser().parsebytes(base64.b64decode(str(text)))
    for part in message.walk():
        if part.get_content_type() != _CONTENT:
            continue
        payload = part.get_payload(decode=True)
        try:
            config = json.loads(payload if isinstance(payload, bytes) else b"")
        except ValueError:
            continue
        if isinstance(config, dict):
            yield config
