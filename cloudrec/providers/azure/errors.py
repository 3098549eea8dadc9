"""What Azure's errors mean: to the engine (may the call be made again?) and to a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from azure.core import exceptions as core

from cloudrec.cloud.driver import UnfinishedError
from cloudrec.engine.graph import Verdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.azure.grants import Grants

_NOTHING, _DENIED, _ABSENT, _TOO_MANY = 204, 403, 404, 429
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
# Timeouts, cut connections, no route, no such host; a reply that is cut short, or is none of Azure's.
_NETWORK = (core.ServiceRequestError, core.ServiceResponseError, core.IncompleteReadError, core.DecodeError)
_LONGEST_RETRY_AFTER_S = 60.0

# What is under way on the same thing, or on what it is part of or stands on: later it is not.
_BUSY = re.compile(
    r"AnotherOperationInProgress|OperationInProgress|RetryableError|^EtagMismatch$|BeingDeleted$"
    r"|^ConcurrentFederatedIdentityCredentials|^Conflict$|^OperationPreempted|NotInSucceededState$"
    r"|^ReferencedResourceNotProvisioned$|^ResourceGroupDeletionBlocked$|^ScopeLocked$",
)
_BUSY_WORDS = re.compile(
    r"another \w* ?operation .*in progress|operation .* is in progress|being deleted",
    re.IGNORECASE | re.DOTALL,
)
# What fails by itself, and would not again.
_FAULT = re.compile(
    r"^Internal\w*Error$|^ServiceUnavailable$|^ServerTimeout$|^GatewayTimeout$|^RequestTimeout"
)
# What stands on it is not gone yet.
_IN_USE = re.compile(r"InUse|CannotBeDeleted(DueTo\w+)?$|CannotDelete|^NicReserved|^SubnetIsInUse")
# What it stands on is not seen everywhere yet.
_NOT_YET = re.compile(r"^(ResourceGroup|ParentResource|Resource|Principal|Subnet)NotFound$")
_CAPACITY = re.compile(
    r"^SkuNotAvailable|AllocationFailed$|^Overconstrained|^AksCapacityHeavyUsage$|^QuotaExceeded$|VCPUQuota"
    r"|^VMSizeNotSupported|^NotAvailableForSubscription$|^CapacityNotAvailable|^OutOfCapacity"
)
_QUOTA_WORDS = re.compile(r"\bquotas?\b", re.IGNORECASE)
_PERMISSION = re.compile(r"AuthorizationFailed$|^CustomKubeletIdentityMissingPermission|^Forbidden$")
_CREDENTIALS = re.compile(r"AuthenticationToken|^AuthenticationFailed|AADSTS\d+")
_MISSING_SUBSCRIPTION = re.compile(r"^SubscriptionNotFound$|^InvalidSubscriptionId$")
_UNREGISTERED = "MissingSubscriptionRegistration"
_COUNT = re.compile(
    r"CountLimitReached$|LimitExceeded$|^MaxStorageAccountsCountPerSubscriptionExceeded$|Quota"
)
_TAKEN = re.compile(r"AlreadyTaken$|AlreadyInUse$|^AccountNameUnavailable")
_WRONG = re.compile(
    r"^Invalid|^BadRequest|Invalid$|NotSupported|^Unsupported|NotAvailableForResourceType$|^Missing"
)
_ACTION = re.compile(r"perform action(?:\(s\))? '([^']+)'(?! on scope '[^']*'; however)")
_LINKED = re.compile(r"does not have permission to perform action(?:\(s\))? '([^']+)'")

# What a refusal means, the first that fits: what its code is like, our error, what we say, the remedy.
_REFUSALS: Sequence[tuple[re.Pattern[str], type[CloudrecError], str, str]] = (
    (
        _CREDENTIALS,
        PreflightError,
        "Azure does not accept the credentials",
        "log in again (`az login`), or look at AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    ),
    (
        _MISSING_SUBSCRIPTION,
        PreflightError,
        "the credentials see no such subscription",
        "look at AZURE_SUBSCRIPTION_ID, and whether it is of the tenant that you log in to",
    ),
    (
        re.compile(r"^(ReadOnly)?DisabledSubscription$|^SubscriptionNotRegistered$"),
        PreflightError,
        "the subscription is disabled",
        "have it enabled (its bill, or its spending limit), or take another with AZURE_SUBSCRIPTION_ID",
    ),
    (
        re.compile(rf"^{_UNREGISTERED}$|^NoRegisteredProviderFound$|^FeatureNotRegistered"),
        PreflightError,
        "the subscription is not registered for what this needs",
        "`az provider register --namespace` with the namespace that this names, and wait until it is done",
    ),
    (
        re.compile(r"^RequestDisallowedByPolicy$|^RequestDisallowedByAzure$"),
        PreflightError,
        "a policy of the subscription forbids it",
        "have whoever assigned the policy that this names exempt the cluster's resource group",
    ),
    (
        _CAPACITY,
        CloudrecError,
        "Azure has none of it, or allows no more",
        "allow other instance types or zones, or ask for a higher quota (Usage + quotas in the portal)",
    ),
    (
        _COUNT,
        PreflightError,
        "a quota of the subscription is used up",
        "remove what is not needed (`cloudrec leaks azure`), or ask for more (Usage + quotas in the portal)",
    ),
    (
        _TAKEN,
        PreflightError,
        "somebody else has the name, which is unique in all of Azure",
        "choose another: storage_account or registry in cluster.settings, or another --cluster",
    ),
    (
        _WRONG,
        SpecError,
        "Azure refuses what it was asked for",
        "change the setting that this names in the spec",
    ),
)
# What a failure on this side means.
_LOCAL: Sequence[tuple[tuple[type[Exception], ...], type[CloudrecError], str, str]] = (
    (
        (core.ClientAuthenticationError,),
        PreflightError,
        "there are no Azure credentials, or they are not accepted",
        "log in (`az login`), or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    ),
    (
        _NETWORK,
        PreflightError,
        "Azure cannot be reached",
        "look at the network, the proxy, and AZURE_RESOURCE_MANAGER_ENDPOINT_URL and AZURE_CA_BUNDLE",
    ),
    (
        (core.SerializationError,),
        SpecError,
        "the SDK refuses what it was asked for",
        "change the setting that this names in the spec",
    ),
)


class OperationFailedError(Exception):
    """A call was accepted, and what it began failed later."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


def code(error: Exception) -> str:
    """Return Azure's code of an error; the class's name where it is not Azure's."""
    if isinstance(error, OperationFailedError):
        return error.code
    if isinstance(error, core.HttpResponseError) and error.error is not None:
        return str(error.error.code or "")
    return type(error).__name__


def message(error: Exception) -> str:
    """Return Azure's own words, those about details included."""
    if isinstance(error, OperationFailedError):
        return error.message
    if isinstance(error, core.HttpResponseError) and error.error is not None:
        details = [detail.message for detail in error.error.details or () if detail.message]
        return " ".join([str(error.error.message or ""), *details]).strip()
    return str(error)


def joined(told: Mapping[str, Any]) -> str:
    """Return the words of an error that an operation tells, with those of its details."""
    parts = [told.get("message"), *(joined(detail) for detail in told.get("details") or ())]
    return " ".join(str(part) for part in parts if part)


def is_absent(error: Exception) -> bool:
    """Tell whether it says that the thing, or what it would be in, is not there.

    Of a resource provider that the subscription never registered for, nothing can be there. That there is no
    such subscription tells nothing of what is in the right one.
    """
    if _MISSING_SUBSCRIPTION.search(code(error)):
        return False
    # To the removal of what is gone some services answer `No Content`, which not every client expects.
    return _status(error) in {_ABSENT, _NOTHING} or code(error) == _UNREGISTERED


def is_transient(error: Exception) -> bool:
    """Tell whether the network, the rate limit or the service's health is in the way of a read."""
    return _status(error) == _TOO_MANY or _is_lost(error)


def again(error: Exception, *, speed: float = 1.0) -> bool | float:
    """Tell whether a read may be made again, and after how many seconds of ours, where Azure says."""
    if not is_transient(error):
        return False
    wanted = retry_after(error)
    return True if wanted is None else min(wanted, _LONGEST_RETRY_AFTER_S) / speed


def retry_after(error: Exception) -> float | None:
    """Return the seconds after which Azure says that the call may be made again; None where it does not."""
    headers = error.response.headers if isinstance(error, core.HttpResponseError) and error.response else {}
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:  # none, or a date, which Azure does not send
        return None


def verdict(error: Exception, grants: Grants) -> Verdict:
    """Tell whether the call that raised this may be made again.

    Args:
        error: as the SDK, or the look at an operation, raised it.
        grants: the roles that were assigned a moment ago.
    """
    if isinstance(error, UnfinishedError):
        cause = error.__cause__
        inner = verdict(cause, grants) if isinstance(cause, Exception) else Verdict.FATAL
        return Verdict.LOST if inner is Verdict.RETRY else inner
    if _status(error) == _TOO_MANY:
        return Verdict.RETRY
    if is_capacity(error):
        return Verdict.UNAVAILABLE
    if _is_lost(error):
        return Verdict.LOST
    return Verdict.RETRY if _passes(error, grants) else Verdict.FATAL


def _passes(error: Exception, grants: Grants) -> bool:
    """Tell whether what is refused now is not refused a little later."""
    if isinstance(error, core.ClientAuthenticationError):
        return False
    what, said = code(error), message(error)
    if any(pattern.search(what) for pattern in (_BUSY, _FAULT, _IN_USE, _NOT_YET)):
        return True
    return _BUSY_WORDS.search(said) is not None or (_is_denied(error) and grants.may_lag(said))


def is_capacity(error: Exception) -> bool:
    """Tell whether the cloud has none of it, or the subscription may have no more of it."""
    what, said = code(error), message(error)
    is_quota = what in {"OperationNotAllowed", "BadRequest"} and _QUOTA_WORDS.search(said) is not None
    return _CAPACITY.search(what) is not None or is_quota


def explain(error: Exception) -> CloudrecError:
    """Say in a person's words what it means, with the remedy and the exit code."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError) and isinstance(error.__cause__, Exception):
        return explain(error.__cause__)
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes) and not (isinstance(error, core.HttpResponseError) and error.error):
            said = message(error).partition("\n")[0]  # what follows is each way of logging in that failed
            return kind(f"{text}: {said}", remedy=remedy)
    if isinstance(error, core.HttpResponseError | OperationFailedError):
        return _explain_refusal(error)
    return CloudrecError(f"{type(error).__name__}: {error}")


def _explain_refusal(error: Exception) -> CloudrecError:
    what, said = code(error), message(error)
    if _is_denied(error) and _PERMISSION.search(what):
        return PreflightError(
            f"{_who_may_not(said)} ({what}): {said}",
            remedy="have that allowed; infra/azure/deployer-role.json lists all that is needed",
        )
    meant = "QuotaExceeded" if is_capacity(error) and not _CAPACITY.search(what) else what
    for pattern, kind, text, remedy in _REFUSALS:
        if pattern.search(meant):
            return kind(f"{text} ({what}): {said}", remedy=remedy)
    return CloudrecError(f"Azure refuses it ({what or _status(error)}): {said}")


def action_of(said: str) -> str:
    """Return the action that a refusal says is not allowed; empty where it names none."""
    found = _LINKED.search(said) or _ACTION.search(said)
    return found[1] if found else ""


def _who_may_not(said: str) -> str:
    action = action_of(said)
    return f"the credentials, or the cluster's identity, may not do {action}" if action else "not allowed"


def _is_denied(error: Exception) -> bool:
    return _status(error) == _DENIED or _PERMISSION.search(code(error)) is not None


def _status(error: Exception) -> int:
    return int(error.status_code or 0) if isinstance(error, core.HttpResponseError) else 0


def _is_lost(error: Exception) -> bool:
    status = _status(error)
    return isinstance(error, _NETWORK) or (status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED)
