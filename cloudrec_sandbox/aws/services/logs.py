"""CloudWatch Logs: the retention periods that it allows, and keys of log groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)


@operation("logs", "PutRetentionPolicy")
def put_retention_policy(call: Call) -> Reply:
    """Refuse a number of days that CloudWatch Logs does not offer."""
    days = call.params["retentionInDays"]
    if days not in _DAYS:
        raise AwsError(
            "InvalidParameterException",
            f"1 validation error detected: Value '{days}' at 'retentionInDays' failed to satisfy constraint: "
            f"Member must satisfy enum value set: [{', '.join(map(str, _DAYS))}]",
        )
    return call.pass_on()


@operation("logs", "AssociateKmsKey")
def associate_kms_key(call: Call) -> dict[str, object]:
    """Let a key encrypt a log group's later events; moto lacks the call."""
    groups, name = call.backend().groups, call.params.get("logGroupName")
    if name not in groups:
        message = "The specified log group does not exist."
        raise AwsError("ResourceNotFoundException", message)
    groups[name].kms_key_id = call.params["kmsKeyId"]
    return {}
