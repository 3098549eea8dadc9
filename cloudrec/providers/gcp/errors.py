"""Google's errors: whether the engine may repeat the call, and the message and remedy for the user."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING

from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.protobuf.json_format import ParseError
from google.protobuf.message import DecodeError
from requests import exceptions as http

from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UnreadableAnswerError
from cloudrec.providers.base.driver import UnfinishedError
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.clock import Clock

_UNREADABLE = (UnreadableAnswerError, ParseError, DecodeError)
# The exceptions that a driver of this provider may raise.
REFUSALS = (
    api.GoogleAPIError,
    auth.GoogleAuthError,
    http.RequestException,
    OperationFailedError,
    *_UNREADABLE,
)

_DENIED, _TOO_MANY = 403, 429
_SERVER_ERROR, _NOT_IMPLEMENTED = 500, 501
_NETWORK = (http.RequestException, auth.TransportError, api.RetryError)
# IAM and Service Usage are eventually consistent: for minutes, a new account or API may be unknown elsewhere.
_EFFECTIVE_S = 600.0
_PREFIX = re.compile(r"^[A-Z]+ \S+: ")  # "GET https://...: ", which the SDK adds to Google's message

_RATE = re.compile(
    r"^rateLimitExceeded$|^userRateLimitExceeded$|^RATE_LIMIT_EXCEEDED$|^CONCURRENT_OPERATIONS_QUOTA_EXCEEDED$"
)
_RATE_WORDS = re.compile(r"per (minute|100 seconds)|rate limit|concurrent operations quota", re.IGNORECASE)
# Another operation is in progress on the resource, another resource uses it, or another process wrote it.
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
# A resource that was created a moment ago and that not every service knows yet.
_NOT_YET = re.compile(
    r"(service account|principal) \S+ does not exist|identity pool does not exist", re.IGNORECASE
)
# An organization policy: its code, conditionNotMet, is also that of a write with an old etag.
_CONSTRAINT = re.compile(r"\bconstraints/\w+")
# The name is in use. A call whose answer was lost may have created it, after the search that did not list it.
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
_SERVICE = re.compile(r"/apis/api/([a-z0-9.-]+)/")  # in the console address of Google's message
_PROJECT = re.compile(r"/overview\?project=([a-z0-9.:-]+)")
_BILLING = re.compile(r"^BILLING_DISABLED$|^accountDisabled$|^UREQ_PROJECT_BILLING")
_NAMED = re.compile(r"'([a-z]+\.[A-Za-z]+\.[A-Za-z]+)'|Permission ([a-z]+\.[A-Za-z]+\.[A-Za-z]+)")
_PERMISSION_NAME = re.compile(r"\b([a-z]+\.[a-zA-Z]+\.[a-zA-Z]+)\b")

_LOG_IN = "`gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"

# How to explain a refusal: a pattern of its code, the error to raise, the message, the remedy. The first
# match counts.
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
        "check the network, the proxy and GOOGLE_CLOUD_GRPC_ENDPOINT, then try again",
    ),
    (
        _BILLING,
        PreflightError,
        "the project has no billing account",
        "link one (`gcloud billing projects link`), or set GOOGLE_CLOUD_PROJECT to another project",
    ),
    (
        re.compile(r"^CONSUMER_INVALID$|^USER_PROJECT_DENIED$|^projectNotFound$"),
        PreflightError,
        "the credentials have no access to the project, or it does not exist",
        "check GOOGLE_CLOUD_PROJECT, and the roles of the credentials' account in that project",
    ),
    (
        re.compile(r"ORG_POLICY|CONSTRAINT_VIOLATED|^conditionNotMet$"),
        PreflightError,
        "a policy of the organization forbids the request",
        "ask an administrator of the organization to exempt the project from the constraint named here",
    ),
    (
        _CAPACITY,
        CloudrecError,
        "Google Cloud has no capacity, or the quota is used up",
        "allow other instance types or zones, or request a higher quota (IAM & Admin, Quotas)",
    ),
    (
        _WRONG,
        SpecError,
        "Google Cloud rejects the request as invalid",
        "change the setting named here in the spec",
    ),
)
# How to explain an error of this side: its classes, the error to raise, the message, the remedy.
_LOCAL: Sequence[tuple[tuple[type[Exception], ...], type[CloudrecError], str, str]] = (
    (
        _NETWORK,
        PreflightError,
        "Google Cloud cannot be reached",
        "check the network, the proxy and GOOGLE_CLOUD_ENDPOINT_URL",
    ),
    (
        (auth.GoogleAuthError,),
        PreflightError,
        "Google Cloud does not accept the credentials",
        _LOG_IN,
    ),
    (
        _UNREADABLE,
        PreflightError,
        "what answers is not Google Cloud",
        "check the network, the proxy and GOOGLE_CLOUD_ENDPOINT_URL; the same command again continues",
    ),
)


class Fresh:
    """The names that this process created or enabled: for minutes, Google may deny that they exist."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, name: str) -> None:
        """Note that a resource or API of this name was created or enabled just now."""
        with self._lock:
            self._since[name] = self._clock.now()

    def names_one(self, said: str) -> bool:
        """Return whether a refusal's message has a name that was noted in the last minutes."""
        with self._lock:
            oldest = self._clock.now() - self._clock.limit(_EFFECTIVE_S)
            return any(name in said and since > oldest for name, since in self._since.items())


def code(error: Exception) -> str:
    """Return the most specific code of an error: its reason, else its status, else the name of its class."""
    if isinstance(error, OperationFailedError):
        return error.code
    if not isinstance(error, api.GoogleAPICallError):
        return type(error).__name__
    if error.reason:
        return str(error.reason)
    reasons = [each.get("reason") for each in error.errors if isinstance(each, dict)]
    if reasons and reasons[0]:
        return str(reasons[0])
    status = _status_name(error) or getattr(error.grpc_status_code, "name", "")
    return str(status or type(error).__name__)


def message(error: Exception) -> str:
    """Return the message of an error, without the SDK's prefix."""
    if isinstance(error, OperationFailedError):
        return error.message
    if isinstance(error, api.GoogleAPICallError):
        return _PREFIX.sub("", str(error.message))
    return str(error)


def is_absent(error: Exception) -> bool:
    """Return whether the error means that the resource or its parent does not exist."""
    return isinstance(error, api.NotFound)


def is_disabled(error: Exception) -> bool:
    """Return whether the error means that the project has not enabled the API."""
    return _DISABLED.search(code(error)) is not None


def is_transient(error: Exception) -> bool:
    """Return whether a read may be retried: after a network error, a rate limit or a server error."""
    return _is_rate(error) or _is_lost(error)


def verdict(error: Exception, fresh: Fresh) -> ErrorVerdict:
    """Return whether the call that raised this may be made again.

    Args:
        error: from the SDK, or of a failed operation.
        fresh: the names that were created or enabled a moment ago.
    """
    if isinstance(error, UnfinishedError):
        return error.verdict(lambda cause: verdict(cause, fresh))
    if _is_rate(error):
        return ErrorVerdict.RETRY
    if is_capacity(error):
        return ErrorVerdict.UNAVAILABLE
    if _is_lost(error) or _EXISTS.search(code(error)):
        return ErrorVerdict.LOST
    return ErrorVerdict.RETRY if _passes(error, fresh) else ErrorVerdict.FATAL


def _passes(error: Exception, fresh: Fresh) -> bool:
    """Return whether the same call may succeed a little later."""
    if not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    what, said = code(error), message(error)
    if _CONSTRAINT.search(said):
        return False
    if _BUSY.search(what) or _BUSY_WORDS.search(said) or _NOT_YET.search(said):
        return True
    # Without a fresh name in the message, the same refusals are final.
    is_late = _DISABLED.search(what) or _is_denied(error) or is_absent(error)
    return bool(is_late) and fresh.names_one(said)


def is_capacity(error: Exception) -> bool:
    """Return whether Google has no capacity, or the project's quota is used up."""
    if _is_rate(error) or not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    what, said = code(error), message(error)
    is_quota = what == "RESOURCE_EXHAUSTED" and "quota" in said.lower()
    return bool(_CAPACITY.search(what) or _CAPACITY_WORDS.search(said)) or is_quota


def explain(error: Exception) -> CloudrecError:
    """Return the error with a message for the user, a remedy and an exit code."""
    if isinstance(error, CloudrecError):
        return error
    if isinstance(error, UnfinishedError):
        return explain(error.cause)
    if isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return _explain_refusal(error)
    if isinstance(error, auth.DefaultCredentialsError):  # its own message is a page of links
        return PreflightError(
            "no Google Cloud credentials found: none in GOOGLE_APPLICATION_CREDENTIALS, no login with "
            "gcloud, and no service account of this machine",
            remedy=_LOG_IN,
        )
    for classes, kind, text, remedy in _LOCAL:
        if isinstance(error, classes):
            return kind(f"{text}: {error.args[0] if error.args else error}", remedy=remedy)
    return CloudrecError(f"{type(error).__name__}: {error}")


def _explain_refusal(error: Exception) -> CloudrecError:
    what, said = code(error), message(error)
    if _DISABLED.search(what):
        named, project = _SERVICE.search(said), _PROJECT.search(said)
        return PreflightError(
            f"an API of the project is not enabled ({what}): {said}",
            remedy=f"`gcloud services enable {named[1] if named else 'SERVICE'} --project "
            f"{project[1] if project else 'PROJECT'}`; one that was just enabled works some minutes later",
        )
    meant = "QUOTA_EXCEEDED" if is_capacity(error) else what
    for pattern, kind, text, remedy in _REFUSED:
        if pattern.search(meant):
            return kind(f"{text} ({what}): {said}", remedy=remedy)
    if _is_denied(error):
        permission = permission_of(said)
        lacking = f"the credentials lack the permission {permission}" if permission else "permission denied"
        return PreflightError(
            f"{lacking} ({what}): {said}",
            remedy="grant it; infra/gcp/README.md has the roles with every permission that cloudrec needs",
        )
    return CloudrecError(f"Google Cloud refuses the request ({what}): {said}")


def permission_of(said: str) -> str:
    """Return the missing permission in a refusal's message, such as `compute.networks.create`; else ""."""
    found = _NAMED.search(said)
    if found:
        return found[1] or found[2]
    bare = _PERMISSION_NAME.search(said)
    return bare[1] if bare else ""


def _status_name(error: api.GoogleAPICallError) -> str:
    """Return the status in the answer of a newer service, such as INVALID_ARGUMENT; else ""."""
    try:
        body = safe_object(error.response.content) if error.response is not None else {}
        return str(body["error"].get("status") or "")
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _is_denied(error: Exception) -> bool:
    return _http_status(error) == _DENIED or _PERMISSION.search(code(error)) is not None


def _is_rate(error: Exception) -> bool:
    """Return whether a rate limit refused the call; Google uses 403 as well as 429, or only the message."""
    if not isinstance(error, api.GoogleAPICallError | OperationFailedError):
        return False
    if _RATE.search(code(error)):
        return True
    is_quota = _http_status(error) in {_DENIED, _TOO_MANY} or code(error) == "RESOURCE_EXHAUSTED"
    said = message(error)
    return is_quota and (_RATE_WORDS.search(said) is not None or _is_bare(error, said))


def _is_bare(error: Exception, said: str) -> bool:
    """Return whether the error is a 429 whose message does not name a quota."""
    return _http_status(error) == _TOO_MANY and "quota" not in said.lower()


def _http_status(error: Exception) -> int:
    return int(error.code or 0) if isinstance(error, api.GoogleAPICallError) else 0


def _is_lost(error: Exception) -> bool:
    if isinstance(error, auth.RefreshError):
        return bool(error.retryable)
    if isinstance(error, api.GoogleAPICallError) and is_capacity(error):
        return False  # Google reports missing capacity with the status of a server error, 503
    status = _http_status(error)
    if isinstance(error, (*_NETWORK, *_UNREADABLE)):
        return True
    return status >= _SERVER_ERROR and status != _NOT_IMPLEMENTED
