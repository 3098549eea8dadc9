"""What Workflows refuses in a workflow, from google/cloud/workflows/v1/workflows.proto."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import access
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.resources import checks
from cloudrec_sandbox.gcp.services.iam import accounts
from cloudrec_sandbox.gcp.services.workflows import programs
from cloudrec_sandbox.gcp.services.workflows.errors import DeploymentError, NotImplementedHereError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from cloudrec_sandbox.gcp.api.call import Call

    Document = Mapping[str, Any]

FIELDS = ("description", "labels", "serviceAccount", "sourceContents", "callLogLevel")
_SHOWN = ("name", "state", "revisionId", "createTime", "updateTime", "revisionCreateTime")
_OTHER = ("cryptoKeyName", "executionHistoryLevel", "stateError", "tags", "userEnvVars")
_ID = re.compile(r"[A-Za-z]([A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")
_ACCOUNT = re.compile(r"(?:projects/(?P<project>[^/]+)/serviceAccounts/)?(?P<email>[^/]+@[^/]+)")
_LEVELS = ("CALL_LOG_LEVEL_UNSPECIFIED", "LOG_ALL_CALLS", "LOG_ERRORS_ONLY", "LOG_NONE")
_MOST_TEXT, _MOST_SOURCE = 1000, 128 * 1024
_ACT_AS = "iam.serviceAccounts.actAs"


def invalid(text: str) -> GcpError:
    """Return a refusal of the request's content."""
    return GcpError("INVALID_ARGUMENT", text)


def known(document: Document, fields: Iterable[str], where: str) -> None:
    """Raise GcpError for a field that a message does not have."""
    if unknown := sorted(set(document) - set(fields)):
        raise invalid(
            f"Invalid JSON payload received. Unknown name \"{unknown[0]}\" at '{where}': Cannot find field."
        )


def identifier(name: str) -> str:
    """Return the id of a new workflow; GcpError for one that the service refuses."""
    if not _ID.fullmatch(name):
        raise invalid(f"The workflow_id '{name}' must match {_ID.pattern}.")
    return name


def workflow(call: Call, document: Document) -> None:
    """Raise GcpError for a workflow that is refused before its deployment begins."""
    known(document, (*_SHOWN, *FIELDS, *_OTHER), "workflow")
    if found := [name for name in _OTHER if document.get(name)]:
        raise GcpError("UNIMPLEMENTED", f"this stand-in has no {found[0]} of a workflow")
    if len(str(document.get("description", ""))) > _MOST_TEXT:
        raise invalid(f"The description must have at most {_MOST_TEXT} characters.")
    if document.get("callLogLevel", _LEVELS[0]) not in _LEVELS:
        raise invalid(f"Invalid value at 'workflow.call_log_level': \"{document['callLogLevel']}\".")
    checks.labels(document.get("labels", {}), "workflow.labels")
    if "serviceAccount" in document:
        _account(call, str(document["serviceAccount"]))
    else:
        raise GcpError("UNIMPLEMENTED", "this stand-in has no workflow as the default account")
    source = str(document.get("sourceContents", ""))
    if not source:
        raise invalid("The workflow has no source_contents.")
    if len(source.encode()) > _MOST_SOURCE:
        raise invalid(f"The source_contents must have at most {_MOST_SOURCE} bytes.")


def program(source: str) -> None:
    """Raise GcpError for a source that fails its deployment."""
    try:
        programs.read(source)
    except DeploymentError as error:
        raise invalid(f"workflow source parse error: {error}") from error
    except NotImplementedHereError as error:
        raise GcpError("UNIMPLEMENTED", f"this stand-in has no program with {error}") from error


def email(account: str) -> str:
    """Return the e-mail address of a workflow's account; GcpError for another form."""
    found = _ACCOUNT.fullmatch(account)
    if found is None:
        raise invalid(f"Invalid service account '{account}'.")
    return found["email"]


def _account(call: Call, account: str) -> None:
    """Check that the account exists, and that the caller may act as it."""
    address = email(account)
    path = f"projects/{call.project}/serviceAccounts/{address}"
    if not accounts.usable(call.world, address):
        raise invalid(f"Service account {address} does not exist.")
    if not access.permitted(call, _ACT_AS, call.project, path):
        raise GcpError(
            "PERMISSION_DENIED",
            f"Permission '{_ACT_AS}' denied on service account {address} (or it may not exist).",
        )
