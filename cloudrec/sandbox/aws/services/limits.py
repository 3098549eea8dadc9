"""Values that botocore's models do not allow and boto3 sends nevertheless: the services refuse them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.aws.errors import AwsError
from cloudrec.sandbox.aws.registry import operation
from cloudrec.sandbox.aws.services.eks.constraints import violation

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.http import Reply

_CODES = {
    "ecr": "InvalidParameterException",
    "fsx": "BadRequest",
    "iam": "ValidationError",
    "kms": "ValidationException",
    "logs": "InvalidParameterException",
}
_CHANGES = ("Add*", "Attach*", "Create*", "Put*", "Schedule*", "Tag*", "Update*")


def _check(call: Call) -> Reply:
    """Refuse what is too long, of no such kind, or spelt in a way that is not taken."""
    fault = violation(call)
    if fault:
        message = f"1 validation error detected: {fault}"
        raise AwsError(_CODES[call.service], message, fields={"Message": message})
    return call.pass_on()


for _service in _CODES:
    operation(_service, *_CHANGES, order=-30)(_check)
