"""Policies of buckets: a stale etag is a failed precondition here, and public access can be prevented."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.services.iam import policies
from cloudrec_sandbox.gcp.services.storage import buckets

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_URL = buckets.URL + "/{bucket}/iam"
_PUBLIC = {"allUsers", "allAuthenticatedUsers"}


def _shown(call: Call, policy: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "storage#policy", "resourceId": f"projects/_/buckets/{call.params['bucket']}", **policy}


@rest(
    "storage",
    "buckets.getIamPolicy",
    "GET",
    _URL,
    query=("optionsRequestedPolicyVersion",),
    permission="storage.buckets.getIamPolicy",
)
def get(call: Call) -> dict[str, Any]:
    """Return the policy of a bucket."""
    return _shown(call, policies.read(call.world, buckets.need(call).path))


@rest("storage", "buckets.setIamPolicy", "PUT", _URL, body=dict, permission="storage.buckets.setIamPolicy")
def set_(call: Call) -> dict[str, Any]:
    """Replace the policy of a bucket."""
    bucket = buckets.need(call)
    access = bucket.document["iamConfiguration"]
    named = {who for each in call.body.get("bindings", []) for who in each.get("members", [])}
    if access["publicAccessPrevention"] == "enforced" and named & _PUBLIC:
        raise GcpError(
            "FAILED_PRECONDITION",
            "The member bindings allUsers and allAuthenticatedUsers are not allowed since public access"
            " prevention is enforced.",
            http=HTTPStatus.PRECONDITION_FAILED,
        )
    if not access["uniformBucketLevelAccess"].get("enabled") and any(
        each.get("condition") for each in call.body.get("bindings", [])
    ):
        raise buckets.invalid("Conditions need uniform bucket-level access.")
    try:
        return _shown(call, policies.write(call.world, bucket.path, call.body))
    except GcpError as error:
        if error.code == "ABORTED":
            raise GcpError(
                "FAILED_PRECONDITION",
                "At least one of the pre-conditions you specified did not hold.",
                http=HTTPStatus.PRECONDITION_FAILED,
            ) from error
        raise


@rest(
    "storage",
    "buckets.testIamPermissions",
    "GET",
    _URL + "/testPermissions",
    query=("permissions",),
)
def test(call: Call) -> dict[str, Any]:
    """Return which of the given permissions the caller has."""
    bucket = buckets.need(call)
    asked = parse_qs(urlsplit(call.raw.target).query).get("permissions", [])
    who = f"serviceAccount:{call.caller}"
    holders = (bucket.path, f"projects/{projects.HOME}")
    given = [each for each in asked if any(policies.allows(call.world, one, who, each) for one in holders)]
    return {"kind": "storage#testIamPermissionsResponse", "permissions": given}
