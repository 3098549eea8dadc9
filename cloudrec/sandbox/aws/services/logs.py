"""CloudWatch Logs: the retentions that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.sandbox.aws.errors import AwsError
from cloudrec.sandbox.aws.registry import operation

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.http import Reply

_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)


@operation("logs", "PutRetentionPolicy")
def put_retention_policy(call: Call) -> Reply:
    """Refuse a number of days that is not among those offered."""
    days = call.params["retentionInDays"]
    if days not in _DAYS:
        raise AwsError(
            "InvalidParameterException",
            f"1 validation error detected: Value '{days}' at 'retentionInDays' failed to satisfy constraint: "
            f"Member must satisfy enum value set: [{', '.join(map(str, _DAYS))}]",
        )
    return call.pass_on()
