"""The meaning of Azure's errors: for the engine (may the call be made again?) and for the user.

Azure has no complete list of its codes, so that they are matched by patterns.
"""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

from azure.core import exceptions as core

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UnreadableAnswerError
from cloudrec.providers.base.driver import UnfinishedError
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from azure.core.rest import HttpResponse

    from cloudrec.engine.clock import Clock

_NOTHING, _DENIED, _ABSENT, _TOO_MANY = 204, 403, 404, 429
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
# Timeouts, cut connections, no route, no such host; a response that is cut short or cannot be parsed.
_NETWORK = (core.ServiceRequestError, core.ServiceResponseError, core.IncompleteReadError, core.DecodeError)
_UNREADABLE = (core.DeserializationError, UnreadableAnswerError)
# What azure-identity wraps into a refusal if a login gets no answer, a page in its place, or another
# document. A ValueError is a tenant or an authority that Entra ID does not know.
_NO_LOGIN = (*_NETWORK, json.JSONDecodeError, AttributeError, LookupError, TypeError)
# The exceptions that a driver of this provider may raise.
REFUSALS = (core.AzureError, OperationFailedError, *_UNREADABLE)
_LONGEST_RETRY_AFTER_S = 60.0
_EFFECTIVE_S = 600.0  # after a role is assigned; Azure documents up to 10 minutes until it has an effect

# Another operation is in progress on the resource, its parent or a resource that it needs. It ends.
_BUSY = re.compile(
    r"AnotherOperationInProgress|OperationInProgress|RetryableError|^EtagMismatch$|BeingDeleted$"
    r"|^ConcurrentFederatedIdentityCredentials|^Conflict$|^OperationPreempted|NotInSucceededState$"
    r"|^ReferencedResourceNotProvisioned$|^ResourceGroupDeletionBlocked$|^ScopeLocked$",
)
_BUSY_WORDS = re.compile(
    r"another \w* ?operation .*in progress|operation .* is in progress|being deleted",
    re.IGNORECASE | re.DOTALL,
)
# A fault inside Azure, which is likely to pass.
_FAULT = re.compile(
    r"^Internal\w*Error$|^ServiceUnavailable$|^ServerTimeout$|^GatewayTimeout$|^RequestTimeout"
)
# A resource that needs this one is not deleted yet.
_IN_USE = re.compile(r"InUse|CannotBeDeleted(DueTo\w+)?$|CannotDelete|^NicReserved|^SubnetIsInUse")
# A resource that this one needs was created a moment ago and is not visible everywhere yet.
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

# The meaning of a refusal: a pattern of its code, cloudrec's error, the message, the remedy. The first match
# counts, so that the order of the rows matters.
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
        "the subscription is not registered for a resource provider or a feature",
        "run `az provider register --wait --namespace` with the namespace in the message",
    ),
    (
        re.compile(r"^RequestDisallowedByPolicy$|^RequestDisallowedByAzure$"),
        PreflightError,
        "a policy of the subscription forbids it",
        "ask the policy's owner to exempt the cluster's resource group",
    ),
    (
        _CAPACITY,
        CloudrecError,
        "Azure has no capacity, or the quota allows no more",
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
        "another account has the name, which is unique in all of Azure",
        "choose another: storage_account or registry in cluster.settings, or another --cluster",
    ),
    (
        _WRONG,
        SpecError,
        "Azure refuses the request as invalid",
        "change the setting that this names in the spec",
    ),
)
# The meaning of errors that the SDK raises without a response of Azure.
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
        "the SDK refuses the request as invalid",
        "change the setting that this names in the spec",
    ),
    (
        _UNREADABLE,
        PreflightError,
        "what answers is not Azure",
        "look at the network, the proxy, and AZURE_RESOURCE_MANAGER_ENDPOINT_URL; run the command again",
    ),
)


class Grants:
    """The principals that this process assigned roles to.

    For some minutes Azure may still refuse what a new role allows. Such a refusal is retried.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, principal: str, age_s: float = 0.0) -> None:
        """Record that a principal, by its object id, got a role `age_s` seconds ago."""
        with self._lock:
            since = self._clock.now() - age_s
            self._since[principal.lower()] = max(since, self._since.get(principal.lower(), since))

    def may_lag(self, text: str) -> bool:
        """Return whether the refused principal got a role a moment ago.

        Args:
            text: the message of the refusal. If it names no principal, a recent role of any principal counts.
        """
        with self._lock:
            oldest = self._clock.now() - self._clock.limit(_EFFECTIVE_S)
            fresh = [principal for principal, since in self._since.items() if since > oldest]
        named = [principal for principal in self._since if principal in text.lower()]
        return any(principal in fresh for principal in named) if named or "object id" in text else bool(fresh)


def code(error: Exception) -> str:
    """Return the code of Azure's error; the class's name if the error is not from Azure."""
    if isinstance(error, OperationFailedError):
        return error.code
    if isinstance(error, core.HttpResponseError) and error.error is not None:
        return str(error.error.code or "")
    return type(error).__name__


def message(error: Exception) -> str:
    """Return the message of Azure's error, with those of its details."""
    if isinstance(error, OperationFailedError):
        return error.message
    if isinstance(error, core.HttpResponseError) and error.error is not None:
        details = [detail.message for detail in error.error.details or () if detail.message]
        return " ".join([str(error.error.message or ""), *details]).strip()
    return str(error)


def joined(error: Mapping[str, Any]) -> str:
    """Return the message of an operation's error, with those of its details."""
    parts = [error.get("message"), *(joined(detail) for detail in error.get("details") or ())]
    return " ".join(str(part) for part in parts if part)


def is_absent(error: Exception) -> bool:
    """Return whether an error means that the resource, or its parent, does not exist.

    A subscription has no resources of a resource provider that it was never registered for. An error about
    a missing subscription is another case: the resource may exist in the right one.
    """
    if _MISSING_SUBSCRIPTION.search(code(error)):
        return False
    # Some services answer `No Content` when a resource is already gone, which some clients raise as an error.
    return _status(error) in {_ABSENT, _NOTHING} or code(error) == _UNREGISTERED


def is_transient(error: Exception) -> bool:
    """Return whether a read failed because of the network, the rate limit or a server error."""
    return _status(error) == _TOO_MANY or _is_lost(error) or _lacks_login(error)


def again(error: Exception, *, speed: float = 1.0) -> bool | float:
    """Return whether a read may be made again; the real seconds to wait if Azure's response has them."""
    if not is_transient(error):
        return False
    wanted = retry_after(error)
    return True if wanted is None else min(wanted, _LONGEST_RETRY_AFTER_S) / speed


def retry_after(error: Exception) -> float | None:
    """Return the seconds in the response's Retry-After header; None if it has none."""
    response = error.response if isinstance(error, core.HttpResponseError) else None
    headers: Mapping[str, str] = getattr(response, "headers", {})
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:  # none, or a date, which Azure does not send
        return None


def verdict(error: Exception, grants: Grants) -> ErrorVerdict:
    """Return whether the call that raised this may be made again.

    Args:
        error: from the SDK, or from polling an operation.
        grants: the roles that this process assigned.
    """
    if isinstance(error, UnfinishedError):
        return error.verdict(lambda cause: verdict(cause, grants))
    if _status(error) == _TOO_MANY:
        return ErrorVerdict.RETRY
    if is_capacity(error):
        return ErrorVerdict.UNAVAILABLE
    if _lacks_login(error):  # before the call itself was sent
        return ErrorVerdict.RETRY
    if _is_lost(error):
        return ErrorVerdict.LOST
    return ErrorVerdict.RETRY if _passes(error, grants) else ErrorVerdict.FATAL


def _passes(error: Exception, grants: Grants) -> bool:
    """Return whether a refused call may succeed a little later."""
    if isinstance(error, core.ClientAuthenticationError):
        return False
    what, text = code(error), message(error)
    if any(pattern.search(what) for pattern in (_BUSY, _FAULT, _IN_USE, _NOT_YET)):
        return True
    return _BUSY_WORDS.search(text) is not None or (is_denied(error) and grants.may_lag(text))


def is_capacity(error: Exception) -> bool:
    """Return whether Azure lacks the capacity, or the subscription's quota is used up."""
    what, text = code(error), message(error)
    # AKS reports a used-up quota under these general codes; only the message has the cause.
    is_quota = what in {"OperationNotAllowed", "BadRequest"} and _QUOTA_WORDS.search(text) is not None
    return _CAPACITY.search(what) is not None or is_quota


def explain(error: Exception) -> CloudrecError:
    """Return an error of cloudrec with the meaning of Azure's, the remedy and the exit code."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError):
        return explain(error.cause)
    if _lacks_login(error):
        return PreflightError(
            f"Entra ID, where Azure's tools log in, does not answer: {message(error).partition(chr(10))[0]}",
            remedy="look at the network, the proxy, and AZURE_AUTHORITY_HOST; run the command again",
        )
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes) and not (isinstance(error, core.HttpResponseError) and error.error):
            # The later lines of a login error list each credential that was tried.
            first = message(error).partition("\n")[0]
            return kind(f"{text}: {first}", remedy=remedy)
    if isinstance(error, core.HttpResponseError | OperationFailedError):
        return _explain_refusal(error)
    return CloudrecError(f"{type(error).__name__}: {error}")


def _explain_refusal(error: Exception) -> CloudrecError:
    what, words = code(error), message(error)
    if is_denied(error) and _PERMISSION.search(what):
        return PreflightError(
            f"{_denied(words)} ({what}): {words}",
            remedy="assign a role with this action; infra/azure/deployer-role.json lists all that are needed",
        )
    meant = "QuotaExceeded" if is_capacity(error) and not _CAPACITY.search(what) else what
    for pattern, kind, text, remedy in _REFUSALS:
        if pattern.search(meant):
            return kind(f"{text} ({what}): {words}", remedy=remedy)
    return CloudrecError(f"Azure refuses the request ({what or _status(error)}): {words}")


def action_of(text: str) -> str:
    """Return the action that a refusal's message has as not allowed; empty if it has none."""
    found = _LINKED.search(text) or _ACTION.search(text)
    return found[1] if found else ""


def _denied(text: str) -> str:
    action = action_of(text)
    return f"the credentials, or the cluster's identity, may not do {action}" if action else "not allowed"


def is_denied(error: Exception) -> bool:
    """Return whether the credentials, or an identity of the cluster, lack a permission."""
    return _status(error) == _DENIED or _PERMISSION.search(code(error)) is not None


def _status(error: Exception) -> int:
    return int(error.status_code or 0) if isinstance(error, core.HttpResponseError) else 0


def _is_lost(error: Exception) -> bool:
    status = _status(error)
    if isinstance(error, (*_NETWORK, *_UNREADABLE)):
        return True
    return status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED


def _lacks_login(error: Exception) -> bool:
    """Return whether a login failed without an answer of Entra ID."""
    if not isinstance(error, core.ClientAuthenticationError):
        return False
    cause = error.__cause__
    wrapped = (cause, cause.__context__ if cause is not None else None)
    return _status(error) >= _SERVER_ERROR or any(isinstance(each, _NO_LOGIN) for each in wrapped)


def object_of(answer: HttpResponse) -> dict[str, Any]:
    """Return the JSON object of an answer; core.DecodeError if it holds anything else."""
    try:
        return safe_object(answer.content)
    except ValueError as error:
        message = f"{answer.request.method} {answer.request.url.partition('?')[0]} is answered with no object"
        raise core.DecodeError(message=f"{message}: {error}", response=answer) from error
