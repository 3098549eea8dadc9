"""Fleets that start at once: a lack of capacity is reported in a successful reply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services import capacity
from cloudrec_sandbox.aws.services.ec2.instances import take

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply


@operation("ec2", "CreateFleet")
def create(call: Call) -> dict[str, Any] | Reply:
    """Refuse in `Errors` if no override has capacity; let moto start the others."""
    wanted = call.params
    if wanted.get("Type") != "instant":
        return call.pass_on()
    target = wanted["TargetCapacitySpecification"]
    market = target.get("DefaultTargetCapacityType", "on-demand")
    errors = []
    for template, override in _choices(call):
        kind, zone = override["InstanceType"], override["AvailabilityZone"]
        try:
            for number in range(target["TotalTargetCapacity"]):
                take(call, kind, zone, market, ahead=number)
        except AwsError as error:
            errors.append(
                {
                    "LaunchTemplateAndOverrides": {
                        "LaunchTemplateSpecification": template,
                        "Overrides": override,
                    },
                    "Lifecycle": market,
                    "ErrorCode": error.code,
                    "ErrorMessage": error.message,
                }
            )
        else:
            return call.pass_on()
    return {"FleetId": f"fleet-{uuid4()}", "Errors": errors, "Instances": []}


def _choices(call: Call) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield every template with every override, its type and zone filled in."""
    ec2 = call.backend()
    for config in call.params["LaunchTemplateConfigs"]:
        template = config["LaunchTemplateSpecification"]
        name = template.get("LaunchTemplateId") or ec2.launch_template_name_to_ids.get(
            template.get("LaunchTemplateName")
        )
        if name not in ec2.launch_templates:
            raise AwsError(
                "InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist."
            )
        data = ec2.launch_templates[name].get_version(template.get("Version", "$Default")).data
        for override in config.get("Overrides") or [{}]:
            kind = override.get("InstanceType") or data.get("InstanceType", "m1.small")
            if not capacity.exists(kind):
                raise AwsError(
                    "InvalidInstanceType", f"The following supplied instance types do not exist: [{kind}]"
                )
            zone = override.get("AvailabilityZone") or f"{call.region}a"
            if subnet := override.get("SubnetId"):
                zone = ec2.get_subnet(subnet).availability_zone
            yield template, {**override, "InstanceType": kind, "AvailabilityZone": zone}
