"""SSM's public parameters that name EKS's images; moto has only old ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_DNS, uuid5

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_PUBLIC = "/aws/service/eks/"
_IMAGE = re.compile(
    r"/aws/service/eks/optimized-ami/1\.\d\d/(?P<os>amazon-linux-2023/(x86_64|arm64)/(standard|nvidia|neuron)"
    r"|amazon-linux-2(-gpu|-arm64)?)/recommended/(?P<member>image_id|release_version)"
)
_RELEASED = "20261105"


@operation("ssm", "GetParameter")
def get(call: Call) -> dict[str, Any] | Reply:
    """Return an image's id, or its release."""
    name = call.params["Name"]
    if not name.startswith(_PUBLIC):
        return call.pass_on()
    match = _IMAGE.fullmatch(name)
    if match is None:
        raise AwsError("ParameterNotFound", f"Parameter {name} not found.")
    version = name.split("/")[5]
    value = (
        f"ami-{uuid5(NAMESPACE_DNS, f'{call.region}{name}').hex[:17]}"
        if match["member"] == "image_id"
        else f"{version}.0-{_RELEASED}"
    )
    return {
        "Parameter": {
            "Name": name,
            "Type": "String",
            "Value": value,
            "Version": 1,
            "LastModifiedDate": as_datetime(call.world.now()),
            "ARN": f"arn:aws:ssm:{call.region}::parameter{name}",
            "DataType": "text",
        }
    }
