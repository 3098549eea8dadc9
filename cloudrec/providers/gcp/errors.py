"""What Google's errors mean: to the engine (may the call be made again?) and to a person."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from google.api_core import exceptions as api
from google.auth import exceptions as auth
from requests import exceptions as http

from cloudrec.cloud.driver import UnfinishedError
from cloudrec.cloud.operated import OperationFailedError
from cloudrec.engine.graph import Verdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.clock import Clock

# What a driver of Google's may raise.
REFUSALS = (api.GoogleAPIError, auth.GoogleAuthError, http.RequestException, OperationFailedError)

_DENIED, _TOO_MANY = 403, 429
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
_NETWORK = (http.RequestException, auth.TransportError, api.RetryError)
_EFFECTIVE_S = 600.0  # until which what was just made or enabled need not be known everywhere
_PREFIX = re.compile(r"^[A-Z]+ \S+: ")  # "GET https://...: ", which the SDK sets before Google's words

_RATE = re.compile(
    r"^rateLimitExceeded$|^userRateLimitExceeded$|^RATE_LIMIT_EXCEEDED$|^CONCURRENT_OPERATIONS_QUOTA_EXCEEDED$"
)
_RATE_WORDS = re.compile(r"per (minute|100 seconds)|rate limit|concurrent operations quota", re.IGNORECASE)
# What is under way on the same thing, or stands on it, or was written by somebody else meanwhile.
_BUSY = re.compile(
    r"^resourceNotReady$|^RESOURCE_NOT_READY$|^resourceInUseByAnotherResource$"
    r"|^RESOURCE_IN_USE(_BY_ANOTHER_RESOURCE)?$|^conditionNotMet$|^CONDITION_NOT_MET$|^ABORTED$"
    r"|^CLUSTER_ALREADY_HAS_OPERATION$|^RESOURCE_OPERATION_IN_PROGRESS$|^resourceOperationInProgress$"
)
_BUSY_WORDS = re.compile(
    r"incompatible operation|please wait and try again|is currently \w+|still using this connection"
    r"|another (activation|operation|deactivation)|concurrent policy changes|already being used by"
    r"|is not ready|operation .* in progress|(is|are) being (created|deleted)"
    r"|you tried to delete is not empty",
    re.IGNORECASE | re.DOTALL,
)
# What was made or enabled a moment ago and is not seen everywhere yet.
_NOT_YET = re.compile(
    r"(service account|principal) \S+ does not exist|identity pool does not exist", re.IGNORECASE
)
_CONSTRAINT = re.compile(
    r"\bconstraints/\w+"
)  # an organization's policy, told with the code of a stale write
# One of that name is there: made by a call whose answer was lost, and not listed when it was looked for.
_EXISTS = re.compile(r"^(alreadyExists|ALREADY_EXISTS|RESOURCE_ALREADY_EXISTS|conflict)$")
_CAPACITY = re.compile(
    r"POOL_EXHAUSTED|STOCKOUT|GCE_QUOTA_EXCEEDED|^QUOTA_EXCEEDED$|^quotaExceeded$|^QUOTA_FAILURE$"
    r"|^IP_SPACE_EXHAUSTED$|^limitExceeded$|RESERVATION_.*(FULL|EXHAUSTED)|^INSUFFICIENT_"
)
_CAPACITY_WORDS = re.compile(
    r"POOL_EXHAUSTED|STOCKOUT|GCE_QUOTA_EXCEEDED|does not have enough resources|out of (resources|stock)"
    r"|quota \S+ exceeded|insufficient (regional )?quota|resource pool exhausted",
    re.IGNORECASE,
)
_DISABLED = re.compile(r"^SERVICE_DISABLED$|^accessNotConfigured$")
_CREDENTIALS = re.compile(r"^UNAUTHENTICATED$|^authError$|ACCESS_TOKEN|^CREDENTIALS_MISSING$")
_PERMISSION = re.compile(r"^PERMISSION_DENIED$|^forbidden$|^IAM_PERMISSION_DENIED$|^insufficientPermissions$")
_WRONG = re.compile(
    r"^INVALID_ARGUMENT$|^invalid|^badRequest$|^required$|^OUT_OF_RANGE$|^parseError$|^BAD_REQUEST$"
)
_SERVICE = re.compile(r"/apis/api/([a-z0-9.-]+)/")  # in the address under which Google says it can be enabled
_BILLING = re.compile(r"^BILLING_DISABLED$|^accountDisabled$|^UREQ_PROJECT_BILLING")
_NAMED = re.compile(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'|Permission ([a-z]+\.[A-Za-z]+\.[A-Za-z]+)")
_PERMISSION_NAME = re.compile(r"\b([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)\b")

_LOG_IN = "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key's file"

# What a refusal means, the first that fits: what its code is like, our error, what we say, the remedy.
_REFUSED: Sequence[tuple[re.Pattern[str], type[CloudrecError], str, str]] = (
    (
        _CREDENTIALS,
        PreflightError,
        "Google Cloud does not accept the credentials",
        _LOG_IN,
    ),
    (
        re.compile(r"^UNAVAILABLE$|^backendError$|^DEADLINE_EXCEEDED$"),
        PreflightError,
        "Google Cloud does not answer",
        "look at the network, the proxy, and GOOGLE_CLOUD_GRPC_ENDPOINT; then again",
    ),
    (
        _BILLING,
        PreflightError,
        "the project has no billing account",
        "link one (`gcloud billing projects link`), or take another project with GOOGLE_CLOUD_PROJECT",
    ),
    (
        re.compile(r"^CONSUMER_INVALID$|^USER_PROJECT_DENIED$|^projectNotFound$"),
        PreflightError,
        "the credentials see no such project",
        "look at GOOGLE_CLOUD_PROJECT, and whether the credentials are of somebody who may use it",
    ),
    (
        re.compile(r"ORG_POLICY|CONSTRAINT_VIOLATED|^conditionNotMet$"),
        PreflightError,
        "a policy of the organization forbids it",
        "have whoever set the constraint that this names exempt the project",
    ),
    (
        _CAPACITY,
        CloudrecError,
        "Google Cloud has none of it, or allows no more",
        "allow other instance types or zones, or ask for a higher quota (IAM & Admin, Quotas)",
    ),
    (
        _WRONG,
        SpecError,
        "Google Cloud refuses what it was asked for",
        "change the setting that this names in the spec",
    ),
)
# What a failure on this side means.
_LOCAL: Sequence[tuple[tuple[type[Exception], ...], type[CloudrecError], str, str]] = (
    (
        _NETWORK,
        PreflightError,
        "Google Cloud cannot be reached",
        "look at the network, the proxy, and GOOGLE_CLOUD_ENDPOINT_URL",
    ),
    (
        (auth.GoogleAuthError,),
        PreflightError,
        "Google Cloud does not accept the credentials",
        _LOG_IN,
    ),
)


class Fresh:
    """What this process made or enabled: for some minutes Google may refuse it as if it were not there."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Note that something of this name was made or enabled just now."""
        with self._lock:
            self._since[name] = self._clock.now()

    def names_one(self, said: str) -> bool:
        """Tell whether a refusal names what was made a moment ago."""
        with self._lock:
            oldest = self._clock.now() - self._clock.limit(_EFFECTIVE_S)
            return any(name in said and since > oldest for name, since in self._since.items())


def code(error: Exception) -> str:
    """Return Google's reason for an error: the most telling of what it gives; else the class's name."""
    if isinstance(error, OperationFailedError):
        return error.code
    if not isinstance(error, api.GoogleAPICallError):
        return type(error).__name__
    if error.reason:
        return str(error.reason)
    told = [each.get("reason") for each in error.errors if isinstance(each, dict)]
    if told and told[0]:
        return str(told[0])
    status = _status_name(error) or getattr(error.grpc_status_code, "name", "")
    return str(status or type(error).__name__)


def message(error: Exception) -> str:
    """Return Google's own words."""
    if isinstance(error, OperationFailedError):
        return error.message
    if isinstance(error, api.GoogleAPICallError):
        return _PREFIX.sub("", str(error.message))
    return str(error)


def is_absent(error: Exception) -> bool:
    """Tell whether it says that the thing, or what it would be in, is not there."""
    return isinstance(error, api.NotFound)


def is_disabled(error: Exception) -> bool:
    """Tell whether it says that the project has not enabled the API."""
    return _DISABLED.search(code(error)) is not None


def is_transient(error: Exception) -> bool:
    """Tell whether the network, the rate limit or the service's health is in the way of a read."""
    return _is_rate(error) or _is_lost(error)


def verdict(error: Exception, fresh: Fresh) -> Verdict:
    """Tell whether the call that raised this may be made again.

    Args:
        error: as the SDK, or the look at an operation, raised it.
        fresh: what was made or enabled a moment ago.
    """
    if isinstance(error, UnfinishedError):
        cause = error.__cause__
        inner = verdict(cause, fresh) if isinstance(cause, Exception) else Verdict.FATAL
        return Verdict.LOST if inner is Verdict.RETRY else inner
    if _is_rate(error):
        return Verdict.RETRY
    if is_capacity(error):
        return Verdict.UNAVAILABLE
    if _is_lost(error) or _EXISTS.search(code(error)):
        return Verdict.LOST
    return Verdict.RETRY if _passes(error, fresh) else Verdict.FATAL


def _passes(error: Exception, fresh: Fresh) -> bool:
    """Tell whether what is refused now is not refused a little later."""
    if not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    what, said = code(error), message(error)
    if _CONSTRAINT.search(said):
        return False
    if _BUSY.search(what) or _BUSY_WORDS.search(said) or _NOT_YET.search(said):
        return True
    is_late = _DISABLED.search(what) or _is_denied(error) or is_absent(error)
    return bool(is_late) and fresh.names_one(said)


def is_capacity(error: Exception) -> bool:
    """Tell whether the cloud has none of it, or the project may have no more of it."""
    if _is_rate(error) or not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    what, said = code(error), message(error)
    is_quota = what == "RESOURCE_EXHAUSTED" and "quota" in said.lower()
    return bool(_CAPACITY.search(what) or _CAPACITY_WORDS.search(said)) or is_quota


def explain(error: Exception) -> CloudrecError:
    """Say in a person's words what it means, with the remedy and the exit code."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError) and isinstance(error.__cause__, Exception):
        return explain(error.__cause__)
    if isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return _explain_refusal(error)
    if isinstance(error, auth.DefaultCredentialsError):  # whose own words are a page of links
        return PreflightError(
            "there are no Google Cloud credentials: neither in GOOGLE_APPLICATION_CREDENTIALS, nor of a "
            "log-in with gcloud, nor of this machine",
            remedy=_LOG_IN,
        )
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes):
            return kind(f"{text}: {error.args[0] if error.args else error}", remedy=remedy)
    return CloudrecError(f"{type(error).__name__}: {error}")


def _explain_refusal(error: Exception) -> CloudrecError:
    what, said = code(error), message(error)
    if _DISABLED.search(what):
        named = _SERVICE.search(said)
        return PreflightError(
            f"an API of the project is not enabled ({what}): {said}",
            remedy=f"`gcloud services enable {named[1] if named else 'SERVICE'}`, or let enable_apis do it",
        )
    meant = "QUOTA_EXCEEDED" if is_capacity(error) else what
    for pattern, kind, text, remedy in _REFUSED:
        if pattern.search(meant):
            return kind(f"{text} ({what}): {said}", remedy=remedy)
    if _is_denied(error):
        permission = permission_of(said)
        may_not = f"the credentials may not do {permission}" if permission else "not allowed"
        return PreflightError(
            f"{may_not} ({what}): {said}",
            remedy="have that allowed; infra/gcp/deployer-role.yaml lists all that is needed",
        )
    return CloudrecError(f"Google Cloud refuses it ({what}): {said}")


def permission_of(said: str) -> str:
    """Return the permission that a refusal says is missing, such as `compute.networks.create`."""
    found = _NAMED.search(said)
    if found:
        return found[1] or found[2]
    bare = _PERMISSION_NAME.search(said)
    return bare[1] if bare else ""


def _status_name(error: api.GoogleAPICallError) -> str:
    """Return what newer services call the status, as in INVALID_ARGUMENT."""
    try:
        body = error.response.json() if error.response is not None else {}
        return str(body["error"].get("status") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _is_denied(error: Exception) -> bool:
    return _http_status(error) == _DENIED or _PERMISSION.search(code(error)) is not None


def _is_rate(error: Exception) -> bool:
    """Tell whether it is asked for too fast, which Google says with 403 too, and with words only."""
    if not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    if _RATE.search(code(error)):
        return True
    is_quota = _http_status(error) in {_DENIED, _TOO_MANY} or code(error) == "RESOURCE_EXHAUSTED"
    said = message(error)
    return is_quota and (_RATE_WORDS.search(said) is not None or _is_bare(error, said))


def _is_bare(error: Exception, said: str) -> bool:
    """Tell whether it is a 429 that says nothing of a quota."""
    return _http_status(error) == _TOO_MANY and "quota" not in said.lower()


def _http_status(error: Exception) -> int:
    return int(error.code or 0) if isinstance(error, api.GoogleAPICallError) else 0


def _is_lost(error: Exception) -> bool:
    if isinstance(error, auth.RefreshError):
        return bool(error.retryable)
    if isinstance(error, api.GoogleAPICallError) and is_capacity(error):
        return False  # Google says that it has no capacity with the status of a failure of its own
    status = _http_status(error)
    return isinstance(error, _NETWORK) or (status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED)
