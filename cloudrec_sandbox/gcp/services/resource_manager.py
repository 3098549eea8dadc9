"""Cloud Resource Manager v3: the project, and its policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.gcp.api import projects
from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.services.iam import policies

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call

_URL = "/v3/projects/{project}"


def _need(call: Call) -> projects.Project:
    found = projects.find(call.world, call.project)
    if found is None:
        raise GcpError(
            "PERMISSION_DENIED",
            f"Permission 'resourcemanager.projects.get' denied on resource"
            f" '//cloudresourcemanager.googleapis.com/projects/{call.project}' (or it may not exist).",
            reason="IAM_PERMISSION_DENIED",
            metadata={
                "resource": f"projects/{call.project}",
                "permission": "resourcemanager.projects.get",
            },
        )
    return found


@rest("cloudresourcemanager", "projects.get", "GET", _URL, permission="resourcemanager.projects.get")
def get(call: Call) -> dict[str, Any]:
    """Return the project, by its id or its number."""
    found = _need(call)
    return {
        "name": f"projects/{found.number}",
        "parent": "organizations/998877665544",
        "projectId": found.id,
        "displayName": found.name,
        "state": found.state,
        "createTime": "2026-01-01T00:00:00Z",
        "etag": 'W/"1d5d3e5b0a1f2c3d"',
    }


def _holder(call: Call) -> str:
    return f"projects/{_need(call).id}"


policies.serve(
    "cloudresourcemanager", "projects", _URL, holder=_holder, permission="resourcemanager.projects"
)
