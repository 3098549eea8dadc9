"""What holds for every call of EC2: dry runs, client tokens, limits of names and tags."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import operation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.core.http import Reply

_FIRST_FAILURE = 300
_MAX_TAGS = 50
_MAX_KEY, _MAX_VALUE = 128, 256


def ask_instead(call: Call, **changes: str) -> None:
    """Let the next handlers see other values of top-level parameters."""
    query = dict(parse_qsl(call.request.body.decode())) | changes
    call.request = replace(call.request, body=urlencode(query).encode())


@dataclass
class Tokens:
    """The parameters and the reply of each client token, by "Action/token"."""

    asked: dict[str, tuple[str, Reply]] = field(default_factory=dict)


@operation("ec2", "*", order=-60)
def dry_run(call: Call) -> Reply:
    """Answer a dry run, which changes nothing: moto creates VPCs in it."""
    if b"DryRun=true" in call.request.body and call.params.get("DryRun"):
        raise AwsError(
            "DryRunOperation",
            "Request would have succeeded, but DryRun flag is set.",
            status=HTTPStatus.PRECONDITION_FAILED,
        )
    return call.pass_on()


@operation("ec2", "Create*", "Run*", "Allocate*", "Purchase*", "Request*", order=-50)
def once(call: Call) -> Reply:
    """Return the same reply for the same token with the same parameters, without another effect."""
    if b"ClientToken=" not in call.request.body:
        return call.pass_on()
    token = f"{call.action}/{call.params['ClientToken']}"
    parameters = json.dumps(call.params, sort_keys=True, default=str)
    asked = call.world.state(Tokens, call.region).asked
    if token in asked:
        # A lost answer is repeated by the SDK with the same token.
        before, reply = asked[token]
        if before != parameters:
            raise AwsError(
                "IdempotentParameterMismatch",
                "The request uses the same client token as a previous, but non-identical request.",
            )
        return reply
    reply = call.pass_on()
    # A refused call may be repeated with other parameters.
    if reply.status < _FIRST_FAILURE:
        asked[token] = parameters, reply
    return reply


@dataclass(frozen=True, kw_only=True)
class _Name:
    pattern: re.Pattern[str]
    code: str = "InvalidParameterValue"


_GROUP_TEXT = re.compile(r"[a-zA-Z0-9 ._\-:/()#,@\[\]+=&;{}!$*]{1,255}")
_NAMES: dict[tuple[str, str], _Name] = {
    ("CreateSecurityGroup", "GroupName"): _Name(
        pattern=re.compile(rf"(?!sg-){_GROUP_TEXT.pattern}", re.IGNORECASE)
    ),
    ("CreateSecurityGroup", "Description"): _Name(pattern=_GROUP_TEXT),
    ("CreateLaunchTemplate", "LaunchTemplateName"): _Name(
        pattern=re.compile(r"[a-zA-Z0-9().\-/_]{3,128}"), code="InvalidLaunchTemplateName.MalformedException"
    ),
    ("CreateLaunchTemplate", "VersionDescription"): _Name(pattern=re.compile(r".{0,255}", re.DOTALL)),
    ("CreatePlacementGroup", "GroupName"): _Name(pattern=re.compile(r"[\x20-\x7e]{1,255}")),
}
_NAMED_ACTIONS = sorted({action for action, _ in _NAMES})


@operation("ec2", *_NAMED_ACTIONS, order=-40)
def names(call: Call) -> Reply:
    """Refuse names that are too long or have characters that EC2 does not allow."""
    for (action, parameter), name in _NAMES.items():
        value = call.params.get(parameter)
        if action == call.action and value is not None and not name.pattern.fullmatch(value):
            raise AwsError(name.code, f"Value ({value}) for parameter {parameter} is invalid.")
    return call.pass_on()


# The kind of resource that each call makes, as tags and ARNs name it.
MADE = {
    "AllocateAddress": "elastic-ip",
    "CreateCapacityReservation": "capacity-reservation",
    "CreateInternetGateway": "internet-gateway",
    "CreateLaunchTemplate": "launch-template",
    "CreateNatGateway": "natgateway",
    "CreateNetworkInterface": "network-interface",
    "CreatePlacementGroup": "placement-group",
    "CreateRouteTable": "route-table",
    "CreateSecurityGroup": "security-group",
    "CreateSubnet": "subnet",
    "CreateVolume": "volume",
    "CreateVpc": "vpc",
    "CreateVpcEndpoint": "vpc-endpoint",
    "PurchaseCapacityBlock": "capacity-reservation",
}


@operation("ec2", "Create*", "Run*", "Allocate*", "PurchaseCapacityBlock", order=-40)
def tags(call: Call) -> Reply:
    """Refuse tags that EC2 does not allow, and tags for another kind of resource than the call makes."""
    _complete_tags(call)
    if b"TagSpecification" in call.request.body:
        for specification in call.params.get("TagSpecifications", []):
            kind, made = specification.get("ResourceType"), MADE.get(call.action)
            if made is not None and kind != made:
                raise AwsError(
                    "InvalidParameterValue",
                    f"'{kind}' is not a valid taggable resource type for this operation.",
                )
            check_tags(specification.get("Tags", []))
    elif call.action == "CreateTags":
        check_tags(call.params.get("Tags", []))
    return call.pass_on()


def _complete_tags(call: Call) -> None:
    """Give each tag without a value an empty one, as EC2 does: moto fails without it."""
    fields = parse_qsl(call.request.body.decode(), keep_blank_values=True)
    names = {name for name, _ in fields}
    values = [f"{name.removesuffix('.Key')}.Value" for name in sorted(names) if name.endswith(".Key")]
    if missing := [(name, "") for name in values if ".Tag." in name and name not in names]:
        call.request = replace(call.request, body=urlencode([*fields, *missing]).encode())


def check_tags(wanted: Iterable[Mapping[str, Any]]) -> None:
    """Raise AwsError for keys and values beyond EC2's limits, and for too many tags."""
    tags = list(wanted)
    keys = [tag.get("Key", "") for tag in tags]
    if len(keys) != len(set(keys)):
        raise AwsError("InvalidParameterValue", "Duplicate tag key specified.")
    if len(keys) > _MAX_TAGS:
        raise AwsError("TagLimitExceeded", f"The maximum number of tags, {_MAX_TAGS}, has been reached.")
    for tag in tags:
        key, value = tag.get("Key", ""), tag.get("Value", "") or ""
        # EC2's own tags, which only AWS sets.
        if key.lower().startswith("aws:"):
            raise AwsError(
                "InvalidParameterValue", f"Tag keys starting with 'aws:' are reserved for internal use: {key}"
            )
        if not 1 <= len(key) <= _MAX_KEY:
            raise AwsError(
                "InvalidParameterValue", f"Tag key exceeds the maximum length of {_MAX_KEY}: {key!r}"
            )
        if len(value) > _MAX_VALUE:
            raise AwsError(
                "InvalidParameterValue", f"Tag value exceeds the maximum length of {_MAX_VALUE}: {value!r}"
            )
