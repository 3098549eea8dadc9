"""The classification and the messages of Google errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from cloudrec.engine.clock import Clock
from cloudrec.engine.graph import ErrorVerdict
from cloudrec.errors import CloudrecError, PreflightError, SpecError
from cloudrec.providers.base.driver import UnfinishedError
from cloudrec.providers.base.operated import OperationFailedError
from cloudrec.providers.gcp import errors


def refused(status: int, message: str, *, reason: str = "", name: str = "", info: str = "") -> Exception:
    """An error as a REST service answers it: the older ones with a reason, the newer with a status's name."""
    body: dict[str, Any] = {"code": status, "message": message}
    if reason:
        body["errors"] = [{"reason": reason, "message": message}]
    if name:
        body["status"] = name
    if info:
        kind = "type.googleapis.com/google.rpc.ErrorInfo"
        body["details"] = [{"@type": kind, "reason": info, "domain": "googleapis.com"}]
    response = requests.Response()
    response.status_code = status
    response._content = json.dumps({"error": body}).encode()
    response.request = requests.Request("GET", "http://127.0.0.1/x").prepare()
    error: Exception = api.from_http_response(response)
    return error


IN_USE = "The network resource 'x' is already being used by 'y'"


@pytest.fixture
def fresh() -> errors.Fresh:
    """Return what was enabled just now."""
    fresh = errors.Fresh(Clock())
    fresh.add("lustre.googleapis.com")
    return fresh


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (refused(400, IN_USE, reason="resourceInUseByAnotherResource"), ErrorVerdict.RETRY),
        (refused(400, "The resource 'x' is not ready", reason="resourceNotReady"), ErrorVerdict.RETRY),
        (OperationFailedError("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", IN_USE), ErrorVerdict.RETRY),
        (refused(412, "Supplied fingerprint does not match", reason="conditionNotMet"), ErrorVerdict.RETRY),
        (
            refused(412, "Constraint constraints/compute.x violated", reason="conditionNotMet"),
            ErrorVerdict.FATAL,
        ),
        (refused(409, "There were concurrent policy changes", name="ABORTED"), ErrorVerdict.RETRY),
        (refused(400, "Service account a@b does not exist.", name="INVALID_ARGUMENT"), ErrorVerdict.RETRY),
        (refused(403, "Quota exceeded for 'Queries per minute'", reason="quotaExceeded"), ErrorVerdict.RETRY),
        (refused(403, "slow down", reason="rateLimitExceeded"), ErrorVerdict.RETRY),
        (refused(403, "x", info="CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"), ErrorVerdict.RETRY),
        (api.ResourceExhausted("Cluster hits the concurrent operations quota 5"), ErrorVerdict.RETRY),
        (api.FailedPrecondition("Cluster is running incompatible operation x"), ErrorVerdict.RETRY),
        (
            OperationFailedError("FAILED_PRECONDITION", "Producer services are still using this connection."),
            ErrorVerdict.RETRY,
        ),
        (
            refused(403, "lustre.googleapis.com has not been used", info="SERVICE_DISABLED"),
            ErrorVerdict.RETRY,
        ),
        (refused(403, "sql.googleapis.com has not been used", info="SERVICE_DISABLED"), ErrorVerdict.FATAL),
        (refused(403, "Required 'a.b.c' permission for 'x'", reason="forbidden"), ErrorVerdict.FATAL),
        (refused(409, "The resource 'x' already exists", reason="alreadyExists"), ErrorVerdict.LOST),
        (refused(503, "Backend Error", reason="backendError"), ErrorVerdict.LOST),
        (api.ServiceUnavailable("failed to connect"), ErrorVerdict.LOST),
        (api.DeadlineExceeded("late"), ErrorVerdict.LOST),
        (requests.ConnectionError("cut"), ErrorVerdict.LOST),
        (refused(501, "no", name="UNIMPLEMENTED"), ErrorVerdict.FATAL),
        (refused(404, "The resource 'x' was not found", reason="notFound"), ErrorVerdict.FATAL),
        (refused(400, "Invalid value", reason="invalid"), ErrorVerdict.FATAL),
        (auth.DefaultCredentialsError("x"), ErrorVerdict.FATAL),
        (OperationFailedError("ZONE_RESOURCE_POOL_EXHAUSTED", "x"), ErrorVerdict.UNAVAILABLE),
        (OperationFailedError("GCE_STOCKOUT", "x"), ErrorVerdict.UNAVAILABLE),
        (refused(503, "does not have enough resources available", reason="x"), ErrorVerdict.UNAVAILABLE),
        (
            refused(403, "Quota 'CPUS' exceeded. Limit: 24.0", reason="quotaExceeded"),
            ErrorVerdict.UNAVAILABLE,
        ),
    ],
)
def test_retryable_errors_are_recognized(
    error: Exception, verdict: ErrorVerdict, fresh: errors.Fresh
) -> None:
    assert errors.verdict(error, fresh) is verdict


def test_a_create_with_an_unknown_result_is_looked_up(fresh: errors.Fresh) -> None:
    unfinished = UnfinishedError(refused(409, "concurrent policy changes", name="ABORTED"))
    assert errors.verdict(unfinished, fresh) is ErrorVerdict.LOST


@pytest.mark.parametrize(
    ("error", "kind", "said", "remedy"),
    [
        (
            refused(403, "Required 'compute.networks.create' permission for 'x'", reason="forbidden"),
            PreflightError,
            "lack the permission compute.networks.create",
            "infra/gcp",
        ),
        (
            refused(403, "Permission 'lustre.instances.create' denied on 'x'", name="PERMISSION_DENIED"),
            PreflightError,
            "lack the permission lustre.instances.create",
            "infra/gcp",
        ),
        (
            refused(403, "Lustre API has not been used in project x", info="SERVICE_DISABLED"),
            PreflightError,
            "not enabled",
            "gcloud services enable",
        ),
        (
            refused(403, "Billing is disabled", info="BILLING_DISABLED"),
            PreflightError,
            "billing",
            "gcloud billing",
        ),
        (
            refused(401, "Invalid Credentials", reason="authError"),
            PreflightError,
            "does not accept",
            "gcloud auth",
        ),
        (
            refused(412, "Constraint constraints/x/y violated", reason="conditionNotMet"),
            PreflightError,
            "organization",
            "exempt",
        ),
        (refused(400, "Invalid value for field 'x'", reason="invalid"), SpecError, "field 'x'", "setting"),
        (OperationFailedError("GCE_STOCKOUT", "none left"), CloudrecError, "none left", "other instance"),
        (requests.ConnectionError("refused"), PreflightError, "cannot be reached", "network"),
        (
            auth.DefaultCredentialsError("see https://x\nand"),
            PreflightError,
            "no Google Cloud cred",
            "gcloud",
        ),
        (auth.RefreshError("invalid_grant", {"error": "x"}), PreflightError, "invalid_grant", "gcloud auth"),
    ],
)
def test_an_error_message_is_explained(
    error: Exception, kind: type[CloudrecError], said: str, remedy: str
) -> None:
    told = errors.explain(error)
    assert type(told) is kind
    assert said in told.message
    assert remedy in (told.remedy or "")
    assert "\n" not in told.message
    assert "http" not in told.message.replace("googleapis.com", "")
