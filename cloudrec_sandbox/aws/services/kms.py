"""KMS: principals of policies, keys that wait for deletion. Duration: kms-day, one of the waiting days."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.aws.api.errors import AwsError
from cloudrec_sandbox.aws.api.registry import durations, operation
from cloudrec_sandbox.aws.services.iam import caller
from cloudrec_sandbox.aws.services.permissions.policies import Wish, allows
from cloudrec_sandbox.aws.services.principals import invalid_principals
from cloudrec_sandbox.core.clock import as_datetime

if TYPE_CHECKING:
    from cloudrec_sandbox.aws.api.call import Call
    from cloudrec_sandbox.aws.api.world import World
    from cloudrec_sandbox.core.http import Reply

durations({"kms-day": 86400})

_CHANGE_POLICY = Wish(action="kms:PutKeyPolicy", resource="*")
_ARN = b"arn:aws:kms"
_FEWEST_DAYS = 7
_PENDING = "PendingDeletion"
_DEFAULT_DAYS = 30
_NEED_A_LIVE_KEY = (
    "CreateAlias",
    "CreateGrant",
    "Decrypt",
    "DisableKey",
    "EnableKey",
    "EnableKeyRotation",
    "Encrypt",
    "GenerateDataKey*",
    "PutKeyPolicy",
    "ScheduleKeyDeletion",
    "TagResource",
    "UntagResource",
    "UpdateAlias",
    "UpdateKeyDescription",
)


@operation("kms", "*", order=-20)
def name_by_id(call: Call) -> Reply:
    """Let a key be named by its ARN everywhere; moto often takes ids only."""
    name = call.params.get("KeyId", "") if _ARN in call.request.body else ""
    if ":key/" in name:
        body = call.request.body.replace(name.encode(), name.rpartition("/")[2].encode())
        call.request = replace(call.request, body=body)
    return call.pass_on()


@operation("kms", "GetKeyPolicy", "PutKeyPolicy", order=-15)
def name_policy(call: Call) -> Reply:
    """Let the policy of a key be unnamed, since a key has only one; moto requires its name."""
    if "PolicyName" not in call.params:
        body = json.loads(call.request.body) | {"PolicyName": "default"}
        call.request = replace(call.request, body=json.dumps(body).encode())
    return call.pass_on()


@operation("kms", "CreateKey", "PutKeyPolicy", order=-10)
def policy(call: Call) -> Reply:
    """Refuse a policy that names a principal that does not exist."""
    text = call.params.get("Policy")
    if text is not None:
        try:
            missing = invalid_principals(call.world, text)
        except ValueError as error:
            raise AwsError("MalformedPolicyDocumentException", f"The policy is no JSON: {error}") from error
        if missing:
            raise AwsError(
                "MalformedPolicyDocumentException",
                "Policy contains a statement with one or more invalid principals.",
            )
        _check_lockout(call, json.loads(text))
    return call.pass_on()


def _check_lockout(call: Call, document: dict[str, Any]) -> None:
    """Refuse a policy by which the caller could not change the policy again.

    botocore's model of CreateKey and PutKeyPolicy: unless BypassPolicyLockoutSafetyCheck is set, the policy
    must allow the caller a subsequent PutKeyPolicy. A policy that gives it to the account leaves it to IAM.
    """
    if call.params.get("BypassPolicyLockoutSafetyCheck"):
        return
    who = ("*", call.account, f"arn:aws:iam::{call.account}:root", caller(call))
    statements = document.get("Statement", [])
    for statement in statements if isinstance(statements, list) else [statements]:
        principal = statement.get("Principal", {})
        named = principal if isinstance(principal, str) else principal.get("AWS", [])
        principals = named if isinstance(named, list) else [named]
        allowed = allows([{"Statement": {**statement, "Resource": "*"}}], _CHANGE_POLICY)
        if allowed and any(each in who for each in principals):
            return
    raise AwsError(
        "MalformedPolicyDocumentException",
        "The new key policy will not allow you to update the key policy in the future.",
    )


@operation("kms", *_NEED_A_LIVE_KEY)
def use(call: Call) -> Reply | dict[str, Any]:
    """Refuse a key that waits for deletion."""
    kms, name = call.backend(), call.params.get("KeyId") or call.params.get("TargetKeyId", "")
    key = kms.keys.get(kms.any_id_to_key_id(name)) if name else None
    if key is not None and key.key_state == _PENDING:
        raise AwsError("KMSInvalidStateException", f"{key.arn} is pending deletion.")
    if call.action == "ScheduleKeyDeletion" and key is not None:
        return _schedule_deletion(call, key.id, key.arn)
    return call.pass_on()


def _schedule_deletion(call: Call, name: str, arn: str) -> dict[str, Any]:
    """Schedule the deletion of a key by its ARN; moto does it only by id."""
    days = call.params.get("PendingWindowInDays", _DEFAULT_DAYS)
    # botocore's model: PendingWindowInDays is between 7 and 30.
    if not _FEWEST_DAYS <= days <= _DEFAULT_DAYS:
        raise AwsError("ValidationException", f"PendingWindowInDays {days} is not within 7 and 30.")
    call.backend().schedule_key_deletion(name, days)
    seconds = days * call.world.duration("kms-day")
    call.world.after(seconds, _finish, call.region, name)
    when = as_datetime(call.world.now() + seconds)
    return {"KeyId": arn, "DeletionDate": when, "KeyState": _PENDING, "PendingWindowInDays": days}


def _finish(world: World, region: str, name: str) -> None:
    keys = world.backend("kms", region).keys
    # A cancelled deletion leaves the key in another state.
    if name in keys and keys[name].key_state == _PENDING:
        del keys[name]
