"""The content of launch templates: network cards, disks, metadata service and placement. No calls are made.

If a template names network interfaces, EC2 requires the security groups in each of them. The primary
interface must be an IP interface. All others are EFA-only interfaces, which have no IP address: 32 addresses
for each node would use up a subnet.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from cloudrec.engine.graph import Properties

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from types_boto3_ec2.literals import InstanceTypeType, ResourceTypeType
    from types_boto3_ec2.type_defs import (
        LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef,
        RequestLaunchTemplateDataTypeDef,
    )

    from cloudrec.providers.aws.offers import AwsInstanceType

_DEVICE = "/dev/xvda"  # the root disk of EKS's images
# Part of the digest; another one renews the nodes of existing clusters at their next `up`. 2: hop limit 1.
_REVISION = 2
_BOUNDARY = "==cloudrec=="
_OPEN_FILES = (65536, 1048576)  # soft and hard limit: those of EKS's image
# More than any machine's memory, and exact as a JSON number, which "unlimited", 2**64 - 1, is not.
_LOCKED_BYTES = 2**43
_TAGGED: tuple[ResourceTypeType, ...] = ("instance", "volume", "network-interface")


@dataclass(frozen=True, kw_only=True)
class TemplateContent(Properties):
    """What the launch template of CPU nodes is made from.

    Attributes:
        root_gib: size of the root disk.
    """

    root_gib: int


@dataclass(frozen=True, kw_only=True)
class GpuTemplateContent(TemplateContent):
    """What the launch template of GPU nodes is made from.

    Attributes:
        instance_type: EC2's name of the type.
        efa_cards: the network cards with an Elastic Fabric Adapter (EFA).
        local_disks: whether a node has NVMe disks, which are joined into one.
        block: whether the nodes come from a Capacity Block.
        reservation: the id of the capacity reservation or block that they come from; empty for none.
        sequential_pull: True to pull images by containerd alone; None for the parallel way on local disks.
            Not False: the digests of templates from before this field would change.
    """

    instance_type: str
    efa_cards: tuple[int, ...]
    local_disks: bool
    block: bool
    reservation: str
    sequential_pull: bool | None = None


def interfaces(
    efa_cards: Sequence[int], groups: Sequence[str]
) -> list[LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef]:
    """Return the network interfaces of a node; none for a node without EFA, which gets EC2's default.

    Args:
        efa_cards: the network cards with EFA.
        groups: IDs of the security groups of every interface.
    """
    if not efa_cards:
        return []

    def interface(
        card: int, device: int, kind: str
    ) -> LaunchTemplateInstanceNetworkInterfaceSpecificationRequestTypeDef:
        return {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "Groups": list(groups),
            "DeleteOnTermination": True,
        }

    # Device 0 of card 0 is IP, and its EFA, if it has one, is device 1. Other cards have only device 0.
    return [
        interface(0, 0, "interface"),
        *(interface(card, 0 if card else 1, "efa-only") for card in efa_cards),
    ]


def gpu_content(
    hardware: AwsInstanceType,
    *,
    root_gib: int,
    capacity: str,
    reservation: str,
    pulls_in_parallel: bool = True,
) -> GpuTemplateContent:
    """Return what the template of a GPU node is made from.

    Args:
        hardware: the hardware of a node.
        root_gib: size of the root disk.
        capacity: the capacity type; only "capacity-block" changes the template.
        reservation: the ID of the capacity reservation or block that the nodes come from; empty for none.
        pulls_in_parallel: whether nodes with local disks pull the layers of an image at once.
    """
    return GpuTemplateContent(
        instance_type=hardware.instance_type,
        efa_cards=hardware.efa_cards,
        root_gib=root_gib,
        local_disks=hardware.nvme_gb > 0,
        block=capacity == "capacity-block",
        reservation=reservation,
        sequential_pull=None if pulls_in_parallel else True,
    )


def template(
    content: TemplateContent, *, groups: Sequence[str], placement_group: str, tags: Mapping[str, str]
) -> RequestLaunchTemplateDataTypeDef:
    """Return EC2's LaunchTemplateData.

    Args:
        content: what the template is made from.
        groups: IDs of the security groups, with the cluster's own: EKS adds none if any is named.
        placement_group: the placement group's name; empty for none.
        tags: tags of instances, volumes and network interfaces.
    """
    data: RequestLaunchTemplateDataTypeDef = {
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            # The node alone: a pod, which is one hop further, gets no credentials of the node's role. EKS
            # drains a managed node that EC2 reclaims, so that its pods learn of it by their eviction.
            "HttpPutResponseHopLimit": 1,
        },
        "BlockDeviceMappings": [
            {
                "DeviceName": _DEVICE,
                "Ebs": {
                    "VolumeSize": content.root_gib,
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
    gpu = content if isinstance(content, GpuTemplateContent) else None
    if layout := interfaces(gpu.efa_cards if gpu else (), groups):
        data["NetworkInterfaces"] = layout
    else:
        data["SecurityGroupIds"] = list(groups)
    if placement_group:
        data["Placement"] = {"GroupName": placement_group}
    if gpu:
        _add_gpu(data, gpu)
    return data


def _add_gpu(data: RequestLaunchTemplateDataTypeDef, gpu: GpuTemplateContent) -> None:
    """Add the fields that only the template of GPU nodes has."""
    # The stubs list the types of the day they were made; EC2 gets new ones every month.
    data["InstanceType"] = cast("InstanceTypeType", gpu.instance_type)
    if node := _node_config(gpu):
        data["UserData"] = _user_data(node)
    if gpu.block:
        data["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if gpu.reservation:
        data["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": gpu.reservation}
        }


def digest(content: TemplateContent) -> str:
    """Return a digest of what a template is made from, 16 hexadecimal digits; drift compares it."""
    made_from = {"revision": _REVISION, **content.requested()}
    return hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()[:16]


def _node_config(gpu: GpuTemplateContent) -> dict[str, object]:
    """Return the `spec` of nodeadm's NodeConfig; empty if the image's defaults suffice."""
    spec: dict[str, object] = {}
    if gpu.local_disks:  # joined into one, for images and scratch files
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
        if not gpu.sequential_pull:
            # The SOCI snapshotter, with its folder on the array (awslabs/amazon-eks-ami, pull requests 2352
            # and 2548), for ordinary images. On a root disk with less than 600 MiB/s it would be slower.
            spec["featureGates"] = {"FastImagePull": True}
    if gpu.efa_cards:
        # EFA registers memory, which locks it. Containers get the kernel's default limit, 8 MiB, unless the
        # runtime's base specification has another one; nodeadm replaces its list of limits as a whole.
        limits = [
            {"type": "RLIMIT_NOFILE", "soft": _OPEN_FILES[0], "hard": _OPEN_FILES[1]},
            {"type": "RLIMIT_MEMLOCK", "soft": _LOCKED_BYTES, "hard": _LOCKED_BYTES},
        ]
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": limits}}}
    return spec


def _user_data(spec: dict[str, object]) -> str:
    """Return user data with a NodeConfig. The data is MIME: only then EKS can add its own part."""
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        "Content-Type: application/node.eks.aws",
        "",
        json.dumps(config),  # JSON is valid YAML, which nodeadm expects
        f"--{_BOUNDARY}--",
        "",
    ]
    return base64.b64encode("\n".join(lines).encode()).decode()
