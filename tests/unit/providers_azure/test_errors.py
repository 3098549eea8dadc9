"""The classification and the messages of Azure errors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from azure.core import exceptions as core

from cloudrec.engine.clock import Clock
from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.errors import Grants
from cloudrec.providers.base.driver import UnfinishedError
from cloudrec.providers.base.operated import OperationFailedError

IDENTITY = "00000000-0000-0000-0000-0000000000ff"
LINKED = (
    f"The client 'app' with object id '{IDENTITY}' has permission to perform action "
    "'Microsoft.ContainerService/managedClusters/write' on scope '/subscriptions/s'; however, it does not "
    "have permission to perform action(s) 'Microsoft.Network/virtualNetworks/subnets/join/action' on the "
    "linked scope(s) '/subscriptions/s/x' (respectively) or the linked scope(s) are invalid."
)
DENIED = (
    "The client 'me' with object id '00000000-0000-0000-0000-00000000000a' does not have authorization to "
    "perform action 'Microsoft.Network/natGateways/write' over scope "
    "'/subscriptions/s' or the scope is invalid."
)
QUOTA = "Operation could not be completed as it results in exceeding approved NDASv4 Cores quota."
BUSY = "Another agentpool operation (gpu - Creating) is in progress, please wait for it to finish."


@dataclass
class Answer:
    """As much of a response as an error keeps."""

    status_code: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    reason: str = ""

    def text(self) -> str:
        return json.dumps(self.body)


def refusal(
    code: str, message: str = "", *, status: int = 400, details: Any = (), **headers: str
) -> core.HttpResponseError:
    body = {"error": {"code": code, "message": message, "details": list(details)}}
    return core.HttpResponseError(response=cast("Any", Answer(status, body, headers)))


def later(code: str, message: str = "") -> OperationFailedError:
    return OperationFailedError(code, message)


def grants(*principals: str) -> Grants:
    made = Grants(Clock())
    for principal in principals:
        made.add(principal)
    return made


def named(value: object) -> str:
    return errors.code(value) if isinstance(value, Exception) else ""


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (refusal("TooManyRequestsReceived", status=429), ErrorVerdict.RETRY),
        (refusal("RetryableErrorDueToAnotherOperation", status=429), ErrorVerdict.RETRY),
        (refusal("AnotherOperationInProgress", status=409), ErrorVerdict.RETRY),
        (refusal("OperationNotAllowed", BUSY, status=409), ErrorVerdict.RETRY),
        (refusal("EtagMismatch", status=409), ErrorVerdict.RETRY),
        (refusal("ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity"), ErrorVerdict.RETRY),
        (refusal("ResourceGroupBeingDeleted", status=409), ErrorVerdict.RETRY),
        (refusal("ResourceGroupDeletionBlocked", status=409), ErrorVerdict.RETRY),
        (refusal("ContainerBeingDeleted", status=409), ErrorVerdict.RETRY),
        (refusal("ResourceGroupNotFound", status=404), ErrorVerdict.RETRY),
        (refusal("PrincipalNotFound"), ErrorVerdict.RETRY),
        (refusal("VirtualNetworkNotInSucceededState"), ErrorVerdict.RETRY),
        (refusal("InUseSubnetCannotBeDeleted"), ErrorVerdict.RETRY),
        (refusal("InUseNetworkSecurityGroupCannotBeDeleted"), ErrorVerdict.RETRY),
        (refusal("PublicIPAddressCannotBeDeleted"), ErrorVerdict.RETRY),
        (later("AnotherOperationInProgress"), ErrorVerdict.RETRY),
        (later("InternalServerError"), ErrorVerdict.RETRY),
        (refusal("InternalServerError", status=500), ErrorVerdict.LOST),
        (core.ServiceRequestError("no route"), ErrorVerdict.LOST),
        (core.ServiceResponseError("cut short"), ErrorVerdict.LOST),
        (refusal("SkuNotAvailable", status=409), ErrorVerdict.UNAVAILABLE),
        (refusal("ZonalAllocationFailed", status=503), ErrorVerdict.UNAVAILABLE),
        (refusal("AksCapacityHeavyUsage"), ErrorVerdict.UNAVAILABLE),
        (refusal("OperationNotAllowed", QUOTA, status=409), ErrorVerdict.UNAVAILABLE),
        (later("AllocationFailed"), ErrorVerdict.UNAVAILABLE),
        (later("OverconstrainedZonalAllocationRequest"), ErrorVerdict.UNAVAILABLE),
        (later("QuotaExceeded"), ErrorVerdict.UNAVAILABLE),
        (refusal("AuthorizationFailed", DENIED, status=403), ErrorVerdict.FATAL),
        (refusal("InvalidParameter"), ErrorVerdict.FATAL),
        (refusal("NotImplemented", status=501), ErrorVerdict.FATAL),
        (refusal("StorageAccountAlreadyTaken", status=409), ErrorVerdict.FATAL),
        (refusal("RoleAssignmentExists", status=409), ErrorVerdict.FATAL),
        (later("ProvisioningFailed"), ErrorVerdict.FATAL),
        (core.ClientAuthenticationError("AADSTS7000215"), ErrorVerdict.FATAL),
        (ValueError("ours"), ErrorVerdict.FATAL),
    ],
    ids=named,
)
def test_the_verdict_decides_whether_a_call_is_retried(error: Exception, verdict: ErrorVerdict) -> None:
    assert errors.verdict(error, grants()) is verdict


def test_a_permission_error_after_a_recent_role_assignment_is_retried() -> None:
    refused = [
        refusal("LinkedAuthorizationFailed", LINKED, status=403),
        later("LinkedAuthorizationFailed", LINKED),
    ]
    nameless = refusal(
        "CustomKubeletIdentityMissingPermissionError", "must be granted Managed Identity Operator"
    )
    mine = refusal("AuthorizationFailed", DENIED, status=403)
    for error in (*refused, nameless):
        assert errors.verdict(error, grants(IDENTITY)) is ErrorVerdict.RETRY
        assert errors.verdict(error, grants()) is ErrorVerdict.FATAL
    # A missing permission of the caller is not changed by a role that cloudrec assigns.
    assert errors.verdict(mine, grants(IDENTITY)) is ErrorVerdict.FATAL
    old = Grants(Clock())
    old.add(IDENTITY, age_s=601)
    assert errors.verdict(refused[0], old) is ErrorVerdict.FATAL


def test_a_create_with_an_unknown_result_is_looked_up_before_a_retry() -> None:
    assert (
        errors.verdict(UnfinishedError(refusal("AnotherOperationInProgress", status=409)), grants())
        is ErrorVerdict.LOST
    )
    assert (
        errors.verdict(UnfinishedError(refusal("AuthorizationFailed", status=403)), grants())
        is ErrorVerdict.FATAL
    )


@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (
            refusal("AuthorizationFailed", DENIED, status=403),
            PreflightError,
            r"may not do Microsoft\.Network/natGateways/write",
        ),
        (
            later("LinkedAuthorizationFailed", LINKED),
            PreflightError,
            r"may not do Microsoft\.Network/virtualNetworks/subnets/join/action",
        ),
        (refusal("InvalidAuthenticationToken", status=401), PreflightError, "not accept the credentials"),
        (refusal("SubscriptionNotFound", status=404), PreflightError, "see no such subscription"),
        (refusal("ReadOnlyDisabledSubscription", status=409), PreflightError, "is disabled"),
        (
            refusal("MissingSubscriptionRegistration", "namespace 'Microsoft.X'", status=409),
            PreflightError,
            "not registered.*Microsoft.X",
        ),
        (refusal("RequestDisallowedByPolicy", "no-ips", status=403), PreflightError, "policy.*no-ips"),
        (refusal("PublicIPCountLimitReached", "10"), PreflightError, "quota.*10"),
        (refusal("StorageAccountAlreadyTaken", "cr1", status=409), PreflightError, "another account.*cr1"),
        (refusal("SkuNotAvailable", "NDASv4"), CloudrecError, "no capacity.*NDASv4"),
        (refusal("OperationNotAllowed", QUOTA, status=409), CloudrecError, "allows no more.*quota"),
        (refusal("InvalidParameter", "x is wrong"), SpecError, "x is wrong"),
        (refusal("Odd", "who knows"), CloudrecError, r"\(Odd\): who knows"),
        (core.ClientAuthenticationError("AADSTS90002"), PreflightError, "no Azure credentials.*AADSTS90002"),
        (core.ServiceRequestError("no route"), PreflightError, "cannot be reached"),
        (UnfinishedError(refusal("AuthorizationFailed", DENIED, status=403)), PreflightError, "may not do"),
    ],
    ids=lambda value: named(value) or None,
)
def test_an_error_is_reported_with_its_exit_code(
    error: Exception, kind: type[CloudrecError], words: str
) -> None:
    explained = errors.explain(error)
    assert type(explained) is kind
    with pytest.raises(kind, match=words):
        raise explained


def test_the_details_of_an_error_are_reported_too() -> None:
    inner = {"code": "Inner", "message": "the zone is full"}
    assert errors.message(refusal("Outer", "it failed", details=[inner])) == "it failed the zone is full"
    assert errors.joined({"message": "it failed", "details": [inner]}) == "it failed the zone is full"


def test_a_read_follows_the_retry_after_header_by_the_clock_of_the_cloud() -> None:
    throttled = refusal("TooManyRequests", status=429, **{"Retry-After": "30"})
    assert errors.again(throttled) == 30
    assert errors.again(throttled, speed=60) == 0.5
    assert errors.again(refusal("InternalServerError", status=500)) is True
    assert errors.again(refusal("InvalidParameter")) is False


def test_a_missing_parent_means_absent_and_a_wrong_subscription_does_not() -> None:
    assert errors.is_absent(refusal("ResourceNotFound", status=404))
    assert errors.is_absent(refusal("MissingSubscriptionRegistration", status=409))
    assert errors.is_absent(core.HttpResponseError(response=cast("Any", Answer(204, {}))))
    assert not errors.is_absent(refusal("SubscriptionNotFound", status=404))
    assert not errors.is_absent(refusal("AuthorizationFailed", status=403))
