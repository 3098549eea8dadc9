"""What EC2 refuses when it launches instances: their network interfaces, groups, disks and architecture.

EC2 stores a launch template without these checks, and makes them at RunInstances. EKS makes a dry run of
RunInstances with a node group's template. The limits of a type are those of DescribeInstanceTypes
(NetworkInfo: NetworkCards with their InterfaceTypes, EfaInfo), the rules those of "Maximize network bandwidth
on instances with multiple network cards" and "Get started with EFA" in EC2's user guide, and of botocore's
model of InstanceNetworkInterfaceSpecification. AWS documents no code for most of them: the codes are EC2's
general ones for a limit, a value and a combination.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.services.ec2.launch_disks import disk_faults
from cloudrec_sandbox.aws.services.ec2.placement import Groups

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec_sandbox.aws.api.world import World

_EFA = ("efa", "efa-only")
_PRIMARY = (0, 0)  # card and device
_HOPS = range(1, 65)  # of the metadata service's answers (botocore's text of HttpPutResponseHopLimit)


def fault(world: World, region: str, kind: str, data: Mapping[str, Any]) -> AwsError | None:
    """Return why EC2 does not launch an instance of this type from these parameters; None if it does."""
    return next(_faults(world, region, kind, data), None)


def _faults(world: World, region: str, kind: str, data: Mapping[str, Any]) -> Iterator[AwsError]:
    interfaces = data.get("NetworkInterfaces") or []
    yield from interface_faults(kind, interfaces)
    yield from disk_faults(data.get("BlockDeviceMappings") or [])
    hops = data.get("MetadataOptions", {}).get("HttpPutResponseHopLimit", 1)
    if int(hops) not in _HOPS:
        yield AwsError(
            "InvalidParameterValue",
            f"Invalid HttpPutResponseHopLimit {hops}: it is {_HOPS[0]} to {_HOPS[-1]}.",
        )
    groups = [
        *data.get("SecurityGroupIds", []),
        *(name for each in interfaces for name in each.get("Groups", [])),
    ]
    ec2 = world.backend("ec2", region)
    for name in groups:
        if ec2.get_security_group_from_id(name) is None:
            yield AwsError("InvalidGroup.NotFound", f"The security group '{name}' does not exist")
    group = data.get("Placement", {}).get("GroupName")
    if group and group not in world.state(Groups, region).rows:
        yield AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{group}' is unknown.")
    image = ec2.amis.get(data.get("ImageId"))
    if image is not None:
        yield from architecture_faults(kind, image.architecture)


def architecture_faults(kind: str, architecture: str) -> Iterator[AwsError]:
    """Yield a fault if an image's architecture is none of the type's."""
    own: Sequence[str] = INSTANCE_TYPES[kind]["ProcessorInfo"]["SupportedArchitectures"]
    if architecture and architecture not in own:
        yield AwsError(
            "InvalidParameterValue",
            f"The architecture '{own[0]}' of the specified instance type does not match the architecture "
            f"'{architecture}' of the specified AMI. Specify an instance type and an AMI that have matching "
            "architectures, and try again.",
        )


def has_gpu(kind: str) -> bool:
    """Return whether a type has a GPU of NVIDIA."""
    gpus = INSTANCE_TYPES[kind].get("GpuInfo", {}).get("Gpus", [])
    return any(gpu["Manufacturer"] == "NVIDIA" for gpu in gpus)


def interface_faults(kind: str, interfaces: Sequence[Mapping[str, Any]]) -> Iterator[AwsError]:
    """Yield what is wrong with network interfaces on an instance of this type."""
    if not interfaces:
        return
    network = INSTANCE_TYPES[kind]["NetworkInfo"]
    cards = {card["NetworkCardIndex"]: card for card in network["NetworkCards"]}
    places = Counter((each.get("NetworkCardIndex", 0), each.get("DeviceIndex")) for each in interfaces)
    if _PRIMARY not in places:
        yield AwsError(
            "InvalidParameterCombination",
            "The primary network interface must have device index 0 on network card index 0.",
        )
    if max(places.values()) > 1:
        yield AwsError("InvalidParameterValue", "Each network interface requires a unique device index.")
    for each in interfaces:
        if each.get("DeviceIndex") is None:
            # "you must specify a device index" (botocore's text of the member).
            yield AwsError("MissingParameter", "Each network interface requires a device index.")
        yield from _card_faults(cards, each)
    for card, count in sorted(Counter(card for card, _ in places.elements()).items()):
        if card in cards and count > cards[card]["MaximumNetworkInterfaces"]:
            yield _too_many(f"Interface count {count} exceeds the limit for network card {card} of {kind}")
    if len(interfaces) > network["MaximumNetworkInterfaces"]:
        yield _too_many(f"Interface count {len(interfaces)} exceeds the limit for {kind}")
    adapters = sum(each.get("InterfaceType") in _EFA for each in interfaces)
    if adapters > network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0):
        yield _too_many(f"EFA interface count {adapters} exceeds allowed limit for {kind}")


def _card_faults(cards: Mapping[int, Mapping[str, Any]], interface: Mapping[str, Any]) -> Iterator[AwsError]:
    card, device = interface.get("NetworkCardIndex", 0), interface.get("DeviceIndex", 0)
    wanted = interface.get("InterfaceType", "interface")
    if card not in cards:
        yield AwsError(
            "InvalidParameterValue",
            f"Network card index {card} exceeds the maximum, {max(cards)}, of the instance type.",
        )
        return
    most = cards[card]["MaximumNetworkInterfaces"]
    if not 0 <= device < most:
        # The words are EC2's own (aws-k8s-tester, pull request 531).
        yield AwsError(
            "InvalidParameterValue",
            f"The specified number '{device}' for the device index exceeds the maximum number of network "
            f"interfaces supported by the network card at network card index {card}. The maximum devices for "
            f"this network card is {most}. Specify a number from 0 to {most - 1}, and try again.",
        )
    if (card, device) == _PRIMARY and wanted == "efa-only":
        yield AwsError(
            "InvalidParameterCombination",
            "An EFA-only network interface cannot be the primary network interface.",
        )
    if wanted not in cards[card]["InterfaceTypes"]:
        yield AwsError(
            "InvalidParameterCombination",
            f"Network card index {card} of the instance type does not support the interface type {wanted}.",
        )


def _too_many(message: str) -> AwsError:
    return AwsError("AttachmentLimitExceeded", message)
