"""S3: names that others have or that are not free yet, regions, policies with conditions.

`foreign_buckets` of /_control: names of buckets that belong to someone else. Duration: s3-name-reuse.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec.sandbox.aws.errors import AwsError
from cloudrec.sandbox.aws.registry import durations, operation, setting
from cloudrec.sandbox.aws.services.principals import invalid_principals
from cloudrec.sandbox.http import Reply

if TYPE_CHECKING:
    from cloudrec.sandbox.aws.call import Call
    from cloudrec.sandbox.aws.world import World

durations({"s3-name-reuse": 30})

_FIRST_FAILURE = 300
_NAME = re.compile(r"(?!xn--|sthree-|.*\.\.)(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass
class Names:
    """Whose names are whose, what was deleted when, and policies as they were put."""

    foreign: list[str] = field(default_factory=list)
    freed: dict[str, float] = field(default_factory=dict)
    policies: dict[str, bytes] = field(default_factory=dict)


def _write(world: World, names: list[str]) -> None:
    if not isinstance(names, list):
        raise ValueError("foreign_buckets is a list of names")  # noqa: TRY004 - /_control's error
    world.state(Names).foreign = list(names)


setting("foreign_buckets", read=lambda world: world.state(Names).foreign, write=_write)


def is_foreign(world: World, bucket: str) -> bool:
    """Whether a bucket belongs to someone else."""
    return bucket in world.state(Names).foreign


@operation("s3", "*", order=-20)
def guard(call: Call) -> Reply:
    """Refuse what is someone else's, and send elsewhere what lies in another region."""
    name = call.target.uri_params.get("Bucket")
    if name is None or call.action == "CreateBucket":
        return call.pass_on()
    if is_foreign(call.world, name):
        raise AwsError("AccessDenied", "Access Denied", status=HTTPStatus.FORBIDDEN)
    bucket = call.world.backend("s3", "aws").buckets.get(name)
    if bucket is not None and bucket.region_name != call.region:
        return _elsewhere(name, bucket.region_name)
    return call.pass_on()


def _elsewhere(name: str, region: str) -> Reply:
    text = (
        '<?xml version="1.0"?><Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to '
        f"access must be addressed using the specified endpoint.</Message><Bucket>{name}</Bucket></Error>"
    )
    return Reply(
        status=HTTPStatus.MOVED_PERMANENTLY,
        headers=(("Content-Type", "application/xml"), ("x-amz-bucket-region", region)),
        body=text.encode(),
    )


@operation("s3", "CreateBucket")
def create(call: Call) -> Reply:
    """Refuse a name that will not do, that someone has, or that became free only a moment ago."""
    name, names = call.params["Bucket"], call.world.state(Names)
    if not _NAME.fullmatch(name):
        raise AwsError("InvalidBucketName", f"The specified bucket is not valid: {name}")
    if name in names.foreign:
        raise AwsError(
            "BucketAlreadyExists",
            "The requested bucket name is not available. The bucket namespace is shared by all users of the "
            "system. Please select a different name and try again.",
            status=HTTPStatus.CONFLICT,
        )
    if names.freed.get(name, 0.0) > call.world.now():
        raise AwsError(
            "OperationAborted",
            "A conflicting conditional operation is currently in progress against this resource. Please try "
            "again.",
            status=HTTPStatus.CONFLICT,
        )
    tags = call.params.get("CreateBucketConfiguration", {}).get("Tags", [])
    reply = call.pass_on()
    if tags and reply.status < _FIRST_FAILURE:
        pairs = {tag["Key"]: tag["Value"] for tag in tags}
        call.world.backend("s3", "aws").put_bucket_tagging(name, pairs)
    return reply


@operation("s3", "DeleteBucket")
def delete(call: Call) -> Reply:
    """Keep the name back for a while."""
    reply = call.pass_on()
    if reply.status < _FIRST_FAILURE:
        name, names = call.params["Bucket"], call.world.state(Names)
        names.freed[name] = call.world.now() + call.world.duration("s3-name-reuse")
        names.policies.pop(name, None)
    return reply


@operation("s3", "PutBucketPolicy")
def put_policy(call: Call) -> Reply:
    """Keep a policy as it is; moto, which knows no conditions, sees no denial that has one."""
    body = call.request.body
    try:
        missing = invalid_principals(call.world, body.decode())
    except ValueError as error:
        raise AwsError("MalformedPolicy", f"Policies must be valid JSON: {error}") from error
    if missing:
        raise AwsError("MalformedPolicy", "Invalid principal in policy")
    reply = call.pass_on()
    if reply.status < _FIRST_FAILURE:
        name = call.params["Bucket"]
        call.world.state(Names).policies[name] = body
        call.world.backend("s3", "aws").buckets[name].policy = _without_conditions(json.loads(body))
    return reply


def _without_conditions(document: dict[str, Any]) -> bytes | None:
    statements = document.get("Statement", [])
    kept = [
        statement
        for statement in (statements if isinstance(statements, list) else [statements])
        if statement.get("Effect") != "Deny" or not statement.get("Condition")
    ]
    return json.dumps(document | {"Statement": kept}).encode() if kept else None


@operation("s3", "GetBucketPolicy")
def get_policy(call: Call) -> Reply:
    """The policy as it was put."""
    policy = call.world.state(Names).policies.get(call.params["Bucket"])
    if policy is None:
        return call.pass_on()
    return Reply(headers=(("Content-Type", "application/json"),), body=policy)


@operation("s3", "DeleteBucketPolicy")
def delete_policy(call: Call) -> Reply:
    """Forget the policy."""
    call.world.state(Names).policies.pop(call.params["Bucket"], None)
    return call.pass_on()
