"""Launch templates: the three errors that EC2 has for an unknown one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply


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
