"""Launch templates: what EC2 refuses of their data at once, and the three errors for an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.constraints import violation
from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.ec2.network.requests import check_tags

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

# botocore's text of LaunchTemplateTagSpecificationRequest.
_TAGGED = ("instance", "volume", "network-interface", "spot-instances-request")
_TYPE = "InstanceType"  # EC2 has types that no model lists yet; a launch refuses an unknown one


@operation("ec2", "CreateLaunchTemplate", "CreateLaunchTemplateVersion", order=-20)
def check_data(call: Call) -> Reply:
    """Refuse values that botocore's model does not list, and tags for what a launch does not make."""
    problem = violation(call)
    if problem and _TYPE not in problem:
        raise AwsError("InvalidParameterValue", f"Invalid value: {problem}")
    for specification in call.params["LaunchTemplateData"].get("TagSpecifications", []):
        kind = specification.get("ResourceType")
        if kind not in _TAGGED:
            raise AwsError(
                "InvalidParameterValue",
                f"'{kind}' is not a valid taggable resource type for this operation: {', '.join(_TAGGED)}.",
            )
        if not specification.get("Tags"):
            raise AwsError("InvalidParameterValue", "Tag specification must have at least one tag")
        check_tags(specification["Tags"])
    return call.pass_on()


@operation(
    "ec2",
    "CreateLaunchTemplateVersion",
    "DeleteLaunchTemplate",
    "DescribeLaunchTemplateVersions",
    "DescribeLaunchTemplates",
    "ModifyLaunchTemplate",
)
def find(call: Call) -> Reply:
    """Refuse unknown ids and names: moto returns an empty list, or the wrong code."""
    ec2, wanted = call.backend(), call.params
    for template in ec2.launch_templates.values():
        template.tags = template.get_tags()  # moto always shows the tags of its creation
    names = wanted.get("LaunchTemplateNames") or _one(wanted.get("LaunchTemplateName"))
    for name in wanted.get("LaunchTemplateIds") or _one(wanted.get("LaunchTemplateId")):
        if name not in ec2.launch_templates:
            raise AwsError(
                "InvalidLaunchTemplateId.NotFound",
                f"The specified launch template, with template ID {name}, does not exist.",
            )
    for name in names:
        if name not in ec2.launch_template_name_to_ids:
            raise AwsError(
                "InvalidLaunchTemplateName.NotFoundException",
                f"The specified launch template, with template name {name}, does not exist.",
            )
    return call.pass_on()


def _one(name: Any) -> list[str]:  # noqa: ANN401 - a parameter or None
    return [] if name is None else [name]
