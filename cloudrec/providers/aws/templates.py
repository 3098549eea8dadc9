"""What a launch template asks of EC2: network cards, disks, metadata service, where nodes stand. Pure.

Where a template names network interfaces, security groups belong into each of them. A primary interface must
speak IP; every other network card carries one interface that speaks only EFA and so uses no address: 32 that
did would drain a subnet.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.aws.offers import Hardware

_DEVICE = "/dev/xvda"  # the root disk of EKS's images
_BOUNDARY = "==cloudrec=="
_TAGGED = ("instance", "volume", "network-interface")


def interfaces(efa: int, groups: Sequence[str]) -> list[dict[str, Any]]:
    """Lay out the network interfaces of a node.

    Args:
        efa: network cards with an adapter; 0 for a node that has none, which needs no layout.
        groups: security groups of every interface.
    """
    if not efa:
        return []

    def interface(card: int, device: int, kind: str) -> dict[str, Any]:
        return {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": list(groups),
            "DeleteOnTermination": True,
        }

    return [
        interface(0, 0, "interface"),
        interface(0, 1, "efa-only"),
        *(interface(card, 0, "efa-only") for card in range(1, efa)),
    ]


def gpu_properties(hardware: Hardware, *, root_gib: int, market: str, reservation: str) -> dict[str, Any]:
    """Say what the template of a GPU node is made from, as a resource's properties.

    Args:
        hardware: the node.
        root_gib: its root disk.
        market: "capacity-block" buys from one; anything else is the node group's own business.
        reservation: a capacity reservation or block that the nodes must come from; empty for none.
    """
    return {
        "instance_type": hardware.instance_type,
        "efa": hardware.efa,
        "root_gib": root_gib,
        "local_disks": hardware.nvme_gb > 0,
        "block": market == "capacity-block",
        "reservation": reservation,
    }


def template(
    properties: Mapping[str, Any], *, groups: Sequence[str], placement_group: str, tags: Mapping[str, str]
) -> dict[str, Any]:
    """Return EC2's LaunchTemplateData.

    Args:
        properties: of the resource: `root_gib` and, for a GPU node, what `gpu_properties` says.
        groups: security groups. EKS adds none where any is given: the cluster's own must be among them.
        placement_group: name of the group that keeps nodes close together; empty for none.
        tags: of everything that is launched.
    """
    data: dict[str, Any] = {
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            "HttpPutResponseHopLimit": 2,  # a pod is one hop further away than its node
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": _DEVICE,
                "Ebs": {
                    "VolumeSize": properties["root_gib"],
                    "VolumeType": "gp3",
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": [
            {"ResourceType": kind, "Tags": [{"Key": key, "Value": tags[key]} for key in sorted(tags)]}
            for kind in _TAGGED
        ],
    }
    if layout := interfaces(properties.get("efa", 0), groups):
        data["NetworkInterfaces"] = layout
    else:
        data["SecurityGroupIds"] = list(groups)
    if instance_type := properties.get("instance_type"):
        data["InstanceType"] = instance_type
    if placement_group:
        data["Placement"] = {"GroupName": placement_group}
    if properties.get("local_disks"):
        data["UserData"] = _user_data()
    if properties.get("block"):
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if reservation := properties.get("reservation"):
        data["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": reservation}
        }
    return data


def digest(properties: Mapping[str, Any]) -> str:
    """Return a short name of what a template is made from, by which a changed one is told."""
    return hashlib.sha256(json.dumps(properties, sort_keys=True).encode()).hexdigest()[:16]


def _user_data() -> str:
    """Have a node join its local disks into one, where images and scratch files then lie.

    EKS adds its own part only to what is MIME.
    """
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"instance": {"localStorage": {"strategy": "RAID0"}}},
    }
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(config),  # which is YAML too
        f"--{_BOUNDARY}--",
        "",
    ]
    return base64.b64encode("\n".join(lines).encode()).decode()
