"""Instances that are started directly: what EC2 refuses, and how long they take to end.

Duration: instance-terminate, for which a terminated instance is shutting down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services import capacity
from cloudrec_sandbox.aws.services.ec2 import launches
from cloudrec_sandbox.aws.services.ec2.network import interfaces
from cloudrec_sandbox.aws.services.iam import profile_is_visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"instance-terminate": 30})


@operation("ec2", "RunInstances")
def run(call: Call) -> dict[str, Any]:
    """Refuse what cannot be started: an unknown type, profile or group, no quota, no capacity."""
    ec2, wanted = call.backend(), _with_template(call)
    kind, zone = wanted.get("InstanceType", "m1.small"), _zone(call, wanted)
    group = wanted.get("Placement", {}).get("GroupName")
    profile = wanted.get("IamInstanceProfile", {})
    name = profile.get("Arn") or profile.get("Name")
    if not capacity.exists(kind):
        raise AwsError("InvalidInstanceType", f"The following supplied instance types do not exist: [{kind}]")
    if name and not profile_is_visible(call.world, name):
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({name}) for parameter iamInstanceProfile.name is invalid. "
            "Invalid IAM Instance Profile name",
        )
    if fault := launches.fault(call.world, call.region, kind, wanted):
        raise fault
    market = wanted.get("InstanceMarketOptions", {}).get("MarketType", "on-demand")
    # moto starts instances whatever the stock; a refusal must come before its call, which changes its state.
    for number in range(wanted["MinCount"]):
        take(call, kind, zone, market, ahead=number)
    output = call.output()
    for row in output["Instances"]:
        ec2.get_instance(row["InstanceId"]).placement.group_name = group or ""
        row.setdefault("Placement", {})["GroupName"] = group or ""
    return output


def _with_template(call: Call) -> dict[str, Any]:
    """Return the call's parameters over those of its launch template."""
    wanted, reference = call.params, call.params.get("LaunchTemplate")
    if not reference:
        return wanted
    ec2 = call.backend()
    name = reference.get("LaunchTemplateId") or ec2.launch_template_name_to_ids.get(
        reference.get("LaunchTemplateName")
    )
    if name not in ec2.launch_templates:
        raise AwsError("InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist.")
    data: Mapping[str, Any] = (
        ec2.launch_templates[name].get_version(reference.get("Version", "$Default")).data
    )
    return {**data, **wanted}


def _zone(call: Call, wanted: Mapping[str, Any]) -> str:
    subnet = wanted.get("SubnetId")
    if subnet is not None:
        return str(call.backend().get_subnet(subnet).availability_zone)
    return str(wanted.get("Placement", {}).get("AvailabilityZone") or f"{call.region}a")


def take(call: Call, kind: str, zone: str, market: str, *, ahead: int) -> None:
    """Take one instance's capacity, after that of `ahead` others of the call; AwsError if there is none."""
    if not capacity.is_offered(call.world, kind, zone):
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({kind}) is not supported in your requested Availability Zone "
            f"({zone}).",
        )
    if not capacity.has_quota(call.world, call.region, kind, market):
        if market == "spot":
            raise AwsError("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        raise AwsError(
            "VcpuLimitExceeded",
            "You have requested more vCPU capacity than your current vCPU limit allows for the instance "
            f"bucket that {kind} belongs to.",
        )
    if not capacity.take(call.world, kind, zone, market, ahead=ahead):
        raise AwsError(
            "InsufficientInstanceCapacity",
            f"We currently do not have sufficient {kind} capacity in the Availability Zone you requested "
            f"({zone}).",
            status=500,
        )


@operation("ec2", "TerminateInstances")
def terminate(call: Call) -> dict[str, Any]:
    """Let the instances shut down first; in moto they are gone at once."""
    output, ec2 = call.output(), call.backend()
    seconds = call.world.duration("instance-terminate")
    for row in output["TerminatingInstances"]:
        instance = ec2.get_instance(row["InstanceId"])
        if row["PreviousState"]["Name"] != "terminated":
            instance._state.name, instance._state.code = "shutting-down", 32
            call.world.after(seconds, _terminated, call.region, instance.id)
        row["CurrentState"] = {"Name": instance._state.name, "Code": instance._state.code}
    return output


def _terminated(world: World, region: str, name: str) -> None:
    ec2 = world.backend("ec2", region)
    instance = ec2.get_instance(name)
    instance._state.name, instance._state.code = "terminated", 48
    # Its primary interface ends with the instance; a subnet cannot be deleted before.
    primary = instance.nics.get(0)
    if primary is not None:
        interfaces.remove(ec2, [primary.id])
