"""What Cloud Scheduler refuses in a job, from google/cloud/scheduler/v1/job.proto and target.proto."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec_sandbox.gcp.api import access
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.services.iam import accounts
from cloudrec_sandbox.gcp.services.scheduler import cron

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec_sandbox.gcp.api.call import Call

    Document = Mapping[str, Any]

TARGETS = ("appEngineHttpTarget", "httpTarget", "pubsubTarget")
FIELDS = ("description", "schedule", "timeZone", "retryConfig", "attemptDeadline", *TARGETS)
_SHOWN = ("name", "state", "status", "scheduleTime", "lastAttemptTime", "userUpdateTime", "satisfiesPzs")
_JOB = re.compile(r"[A-Za-z0-9_-]{1,500}")
_DURATION = re.compile(r"(\d+(?:\.\d{1,9})?)s")
_METHODS = ("POST", "GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS")
_WITH_BODY = ("POST", "PUT", "PATCH")
_MOST_TEXT, _MOST_URI, _MOST_RETRIES = 500, 2083, 5
_DEADLINE = (15.0, 1800.0)  # seconds, of a job with an HTTP target
_TOKENS = {
    "oauthToken": ("scope", "serviceAccountEmail"),
    "oidcToken": ("audience", "serviceAccountEmail"),
}
_BACKOFFS = ("minBackoffDuration", "maxBackoffDuration", "maxRetryDuration")


def invalid(text: str) -> GcpError:
    """Return a refusal of the request's content."""
    return GcpError("INVALID_ARGUMENT", text)


def seconds(text: object, default: float, name: str = "duration") -> float:
    """Return a duration of JSON ("3.5s") in seconds; `default` for an absent one."""
    if text is None:
        return default
    found = _DURATION.fullmatch(str(text))
    if found is None:
        raise invalid(f"Invalid value for field '{name}': \"{text}\" is not a duration.")
    return float(found[1])


def known(document: Document, fields: tuple[str, ...], where: str) -> None:
    """Raise GcpError for a field that a message does not have."""
    if unknown := sorted(set(document) - set(fields)):
        raise invalid(
            f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at '{where}': Cannot find field."
        )


def name_of(folder: str, document: Document) -> str:
    """Return the path of a new job, which the body has."""
    front, _, name = str(document.get("name", "")).rpartition("/")
    if front != folder or not _JOB.fullmatch(name):
        raise invalid(f"Job name must be formatted: '{folder}/JOB_ID'.")
    return f"{folder}/{name}"


def job(call: Call, document: Document) -> cron.Cron:
    """Raise GcpError for an invalid job; return its schedule."""
    known(document, (*_SHOWN, *FIELDS), "job")
    if len(str(document.get("description", ""))) > _MOST_TEXT:
        raise invalid(f"The description must not contain more than {_MOST_TEXT} characters.")
    try:
        schedule = cron.parse(str(document.get("schedule", "")), str(document.get("timeZone", "")))
    except ValueError as error:
        raise invalid("Schedule or time zone is invalid.") from error
    targets = [each for each in TARGETS if document.get(each)]
    if len(targets) != 1:
        raise invalid("A job must have exactly one of the targets pubsub, app engine and http.")
    _retries(document.get("retryConfig", {}))
    deadline = seconds(document.get("attemptDeadline"), _DEADLINE[0], "job.attempt_deadline")
    if targets == ["httpTarget"]:
        if not _DEADLINE[0] <= deadline <= _DEADLINE[1]:
            raise invalid("The attempt deadline must be in the interval [15 seconds, 30 minutes].")
        _target(call, document["httpTarget"])
    return schedule


def _retries(config: Document) -> None:
    known(config, ("retryCount", "maxDoublings", *_BACKOFFS), "job.retry_config")
    if not 0 <= int(config.get("retryCount", 0)) <= _MOST_RETRIES or int(config.get("maxDoublings", 0)) < 0:
        raise invalid(f"The retry count must be in [0, {_MOST_RETRIES}], and no number may be negative.")
    least, most = (
        seconds(config.get(name), by, name) for name, by in zip(_BACKOFFS, (5.0, 3600.0), strict=False)
    )
    seconds(config.get("maxRetryDuration"), 0.0, "maxRetryDuration")
    if least > most:
        raise invalid("The minimum backoff must not be greater than the maximum backoff.")


def _target(call: Call, target: Document) -> None:
    known(target, ("uri", "httpMethod", "headers", "body", *_TOKENS), "job.http_target")
    uri, method = str(target.get("uri", "")), str(target.get("httpMethod", "POST"))
    found = urlsplit(uri)
    if found.scheme not in ("http", "https") or not found.hostname or len(uri) > _MOST_URI:
        raise invalid(f"The URI must begin with http:// or https:// and have at most {_MOST_URI} characters.")
    if method not in _METHODS:
        raise invalid(f"Invalid value at 'job.http_target.http_method': \"{method}\".")
    if target.get("body"):
        if method not in _WITH_BODY:
            raise invalid(f"A body is not allowed with the HTTP method {method}.")
        try:
            base64.b64decode(str(target["body"]), validate=True)
        except binascii.Error as error:
            raise invalid("Invalid value at 'job.http_target.body' (TYPE_BYTES): no base64.") from error
    tokens = [name for name in _TOKENS if name in target]
    if len(tokens) > 1:
        raise invalid("Only one of oauth_token and oidc_token may be set.")
    for name in tokens:
        known(target[name], _TOKENS[name], f"job.http_target.{name}")
        _account(call, str(target[name].get("serviceAccountEmail", "")))
    if "oauthToken" in tokens and (found.scheme != "https" or not found.hostname.endswith(".googleapis.com")):
        raise invalid("An OAuth token is sent only to https:// addresses of *.googleapis.com.")


def _account(call: Call, email: str) -> None:
    """Check the account of a job's calls: of the job's project, and the caller may act as it."""
    path = f"projects/{call.project}/serviceAccounts/{email}"
    permission = "iam.serviceAccounts.actAs"
    exists = accounts.usable(call.world, email)
    if email.partition("@")[2].endswith(".iam.gserviceaccount.com") and exists:
        home = email.partition("@")[2].partition(".")[0]
        if home != call.project and not home.startswith("gcp-sa-"):
            raise invalid(f"The service account {email} must be within the same project as the job.")
    if not exists or not access.permitted(call, permission, call.project, path):
        raise GcpError(
            "PERMISSION_DENIED",
            f'The principal (user or service account) lacks IAM permission "{permission}" for the resource'
            f' "{email}" (or the resource may not exist).',
        )
