"""Values that botocore's models do not allow and boto3 sends: the services refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.aws.api.constraints import violation
from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_CODES = {
    "ecr": "InvalidParameterException",
    "fsx": "BadRequest",
    "iam": "ValidationError",
    "kms": "ValidationException",
    "logs": "InvalidParameterException",
}
_CHANGES = ("Add*", "Attach*", "Create*", "Put*", "Schedule*", "Tag*", "Update*")


def _check(call: Call) -> Reply:
    """Refuse a value that is too long, is not in the enum, or does not match the pattern."""
    fault = violation(call)
    if fault:
        message = f"1 validation error detected: {fault}"
        raise AwsError(_CODES[call.service], message, fields={"Message": message})
    return call.pass_on()


for _service in _CODES:
    operation(_service, *_CHANGES, order=-30)(_check)
