"""Errors of an API server with their remedies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudrec.kubernetes.client.errors import (
    AbsentError,
    ConflictError,
    DeniedError,
    ErrorResponse,
    ExpiredError,
    InvalidError,
    KubeError,
    OverloadedError,
    error_of,
)


def _error(status: int, *, retry_after: str | None = None, **document: Any) -> KubeError:
    body = json.dumps(document).encode()
    return error_of(
        ErrorResponse(status=status, body=body, retry_after=retry_after, what="list pods", server="https://c")
    )


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (401, DeniedError, 3),
        (403, DeniedError, 3),
        (404, AbsentError, 1),
        (409, ConflictError, 1),
        (410, ExpiredError, 1),
        (422, InvalidError, 2),
        (429, OverloadedError, 1),
        (503, OverloadedError, 1),
    ],
)
def test_each_http_status_has_an_error_and_an_exit_code(
    status: int, kind: type[KubeError], code: int
) -> None:
    error = _error(status, message="so it is", reason="Why")
    assert type(error) is kind
    assert (error.exit_code, error.status, error.reason) == (code, status, "Why")
    assert "list pods" in error.message


def test_403_names_the_missing_permission() -> None:
    said = 'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "runs"'
    error = _error(403, message=said)
    assert error.message == "cannot list pods: ann may not list pods in namespace runs"
    assert "'list' on pods in namespace runs" in (error.remedy or "")


def test_403_for_a_quota_or_a_terminating_namespace_is_not_a_permission_error() -> None:
    quota = _error(403, message='pods "x" is forbidden: exceeded quota: gpus, requested: 8, used: 8')
    going = _error(403, message="forbidden: unable to create new content because it is being terminated")
    assert "ResourceQuota" in (quota.remedy or "")
    assert isinstance(going, OverloadedError)


def test_a_field_ownership_conflict_names_the_field_and_the_owner() -> None:
    cause = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "kubectl" using apps/v1',
        "field": ".spec.replicas",
    }
    error = _error(409, reason="Conflict", details={"causes": [cause]})
    assert isinstance(error, ConflictError)
    assert error.owners == {".spec.replicas": "kubectl"}
    assert ".spec.replicas is owned by kubectl" in error.message


def test_422_lists_the_causes_from_the_server() -> None:
    cause = {"field": "spec.template", "message": "field is immutable"}
    error = _error(422, message="long", details={"causes": [cause]})
    assert error.message == "the cluster refuses to list pods: spec.template: field is immutable"


@pytest.mark.parametrize("causes", [1, "x", {"a": 1}, [1], None])
def test_causes_of_another_type_are_left_out(causes: object) -> None:
    assert "the cluster refuses" in _error(422, message="long", details={"causes": causes}).message


def test_429_has_the_retry_delay_and_is_safe_to_retry() -> None:
    error = _error(429, retry_after="7", message="slow down")
    assert isinstance(error, OverloadedError)
    assert (error.wait_s, error.had_no_effect) == (7.0, True)


def test_a_response_that_is_not_a_status_is_reported_unchanged() -> None:
    answer = ErrorResponse(
        status=502, body=b"<html>bad gateway", retry_after=None, what="list pods", server="s"
    )
    assert "bad gateway" in error_of(answer).message
