"""S3: bucket names that are taken or not free yet, regions, policies with conditions.

`foreign_buckets` of /_control: names of buckets that belong to other accounts. Duration: s3-name-reuse.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation, setting
from cloudrec_sandbox.aws.services.principals import invalid_principals
from cloudrec_sandbox.core.http import Reply

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World

durations({"s3-name-reuse": 30})

_FIRST_FAILURE = 300
_GLOBAL = "us-east-1"  # the region for which clients sign requests to the global endpoint, s3.amazonaws.com
_NAME = re.compile(r"(?!xn--|sthree-|.*\.\.)(?!\d+\.\d+\.\d+\.\d+$)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass
class Names:
    """Names of other accounts, names of deleted buckets, and policies as they were put."""

    foreign: list[str] = field(default_factory=list)
    freed: dict[str, float] = field(default_factory=dict)
    policies: dict[str, bytes] = field(default_factory=dict)


def _write(world: World, names: list[str]) -> None:
    if not isinstance(names, list):
        raise ValueError("foreign_buckets is a list of names")  # noqa: TRY004 - /_control's error
    world.state(Names).foreign = list(names)


setting("foreign_buckets", read=lambda world: world.state(Names).foreign, write=_write)


def is_foreign(world: World, bucket: str) -> bool:
    """Return whether a bucket belongs to another account."""
    return bucket in world.state(Names).foreign


@operation("s3", "*", order=-110)
def in_its_region(call: Call) -> Reply:
    """Refuse a request for a bucket in another region, before the permissions, which are of that region."""
    name = call.target.uri_params.get("Bucket")
    if name is None or call.action == "CreateBucket":
        return call.pass_on()
    # moto serves every bucket in every region.
    bucket = call.world.backend("s3", "aws").buckets.get(name)
    if bucket is not None and bucket.region_name != call.region:
        return _elsewhere(call, name, bucket.region_name)
    return call.pass_on()


@operation("s3", "*", order=-20)
def guard(call: Call) -> Reply:
    """Refuse another account's bucket."""
    name = call.target.uri_params.get("Bucket")
    if name is not None and call.action != "CreateBucket" and is_foreign(call.world, name):
        raise AwsError("AccessDenied", "Access Denied", status=HTTPStatus.FORBIDDEN)
    return call.pass_on()


def _elsewhere(call: Call, name: str, region: str) -> Reply:
    """Return S3's refusal of a request for a bucket in another region than the one that it is signed for.

    The global endpoint, which clients of us-east-1 use, leads to the bucket's region, which refuses the
    signature; the endpoint of a region does not serve other regions ("Error responses" and "Making requests
    using the global endpoint", S3's API reference). A reply to HEAD has no body, but always the header.
    """
    is_global = call.region == _GLOBAL
    code = "AuthorizationHeaderMalformed" if is_global else "PermanentRedirect"
    message = (
        f"The authorization header is malformed; the region '{call.region}' is wrong; expecting '{region}'"
        if is_global
        else "The bucket you are attempting to access must be addressed using the specified endpoint. Please "
        "send all future requests to this endpoint."
    )
    more = (
        f"<Region>{region}</Region>"
        if is_global
        else f"<Endpoint>{name}.s3.{region}.amazonaws.com</Endpoint><Bucket>{name}</Bucket>"
    )
    text = (
        f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message>'
        f"{more}</Error>"
    )
    is_head = call.request.method == "HEAD"
    named = (("x-amz-bucket-region", region),) if is_head or not is_global else ()
    return Reply(
        status=HTTPStatus.BAD_REQUEST if is_global else HTTPStatus.MOVED_PERMANENTLY,
        headers=(("Content-Type", "application/xml"), *named),
        body=b"" if is_head else text.encode(),
    )


@operation("s3", "ListBuckets")
def list_buckets(call: Call) -> dict[str, Any]:
    """Return the buckets of a region if the call names one: moto returns those of all regions."""
    output, region = call.output(), call.params.get("BucketRegion")
    known = call.world.backend("s3", "aws").buckets
    for row in output.get("Buckets") or ():
        row["BucketRegion"] = known[row["Name"]].region_name
    if region:
        output["Buckets"] = [row for row in output.get("Buckets") or () if row["BucketRegion"] == region]
    return output


@operation("s3", "CreateBucket")
def create(call: Call) -> Reply:
    """Refuse a name that is invalid, that another account has, or that became free only a moment ago."""
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
    # A deleted bucket's name is free for all accounts only some time later.
    if names.freed.get(name, 0.0) > call.world.now():
        raise AwsError(
            "OperationAborted",
            "A conflicting conditional operation is currently in progress against this resource. Please try "
            "again.",
            status=HTTPStatus.CONFLICT,
        )
    # moto ignores the tags of CreateBucket.
    tags = call.params.get("CreateBucketConfiguration", {}).get("Tags", [])
    reply = call.pass_on()
    if tags and reply.status < _FIRST_FAILURE:
        pairs = {tag["Key"]: tag["Value"] for tag in tags}
        call.world.backend("s3", "aws").put_bucket_tagging(name, pairs)
    return reply


@operation("s3", "DeleteBucket")
def delete(call: Call) -> Reply:
    """Keep the name reserved for a while."""
    reply = call.pass_on()
    if reply.status < _FIRST_FAILURE:
        name, names = call.params["Bucket"], call.world.state(Names)
        names.freed[name] = call.world.now() + call.world.duration("s3-name-reuse")
        names.policies.pop(name, None)
    return reply


@operation("s3", "PutBucketPolicy")
def put_policy(call: Call) -> Reply:
    """Keep a policy as it was put; moto, which ignores conditions, gets it without conditional denials."""
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
        # moto answers 200 with the word "True"; S3 answers without a body ("PutBucketPolicy", API reference).
        return Reply(status=HTTPStatus.NO_CONTENT)
    return reply


def _without_conditions(document: dict[str, Any]) -> bytes | None:
    # Kept as put, the denial of unencrypted calls would block all calls: moto ignores the condition on them.
    statements = document.get("Statement", [])
    kept = [
        statement
        for statement in (statements if isinstance(statements, list) else [statements])
        if statement.get("Effect") != "Deny" or not statement.get("Condition")
    ]
    return json.dumps(document | {"Statement": kept}).encode() if kept else None


@operation("s3", "GetBucketPolicy")
def get_policy(call: Call) -> Reply:
    """Return the policy as it was put."""
    policy = call.world.state(Names).policies.get(call.params["Bucket"])
    if policy is None:
        return call.pass_on()
    return Reply(headers=(("Content-Type", "application/json"),), body=policy)


@operation("s3", "DeleteBucketPolicy")
def delete_policy(call: Call) -> Reply:
    """Forget the policy."""
    call.world.state(Names).policies.pop(call.params["Bucket"], None)
    return call.pass_on()
