"""The services of Google, and which project a call of each counts for."""

from __future__ import annotations

from dataclasses import dataclass

HOME = "sandbox-project"  # the project that clients use
NUMBER = "123456789012"


@dataclass(frozen=True, kw_only=True)
class Api:
    """One service.

    Attributes:
        host: its name among the APIs that a project enables.
        title: its name in messages.
        classic: it answers errors as the older JSON APIs do, with a list of reasons.
        anonymous: calls without a token are accepted: under an emulator's address the SDKs send none.
        free: it works without billing.
        shared: calls count for the caller's own project, not for the project of the resource.
        dormant: the project has not enabled it at the start.
        default: Google enables it in each new project.
    """

    host: str
    title: str
    classic: bool = False
    anonymous: bool = False
    free: bool = False
    shared: bool = False
    dormant: bool = False
    default: bool = False


APIS = {
    "artifactregistry": Api(host="artifactregistry.googleapis.com", title="Artifact Registry API"),
    "cloudasset": Api(
        host="cloudasset.googleapis.com", title="Cloud Asset API", free=True, shared=True, dormant=True
    ),
    "cloudbilling": Api(
        host="cloudbilling.googleapis.com", title="Cloud Billing API", free=True, shared=True
    ),
    "cloudquotas": Api(host="cloudquotas.googleapis.com", title="Cloud Quotas API", free=True, shared=True),
    "cloudscheduler": Api(host="cloudscheduler.googleapis.com", title="Cloud Scheduler API", dormant=True),
    "cloudresourcemanager": Api(
        host="cloudresourcemanager.googleapis.com", title="Cloud Resource Manager API", free=True, shared=True
    ),
    "compute": Api(host="compute.googleapis.com", title="Compute Engine API", classic=True),
    "container": Api(host="container.googleapis.com", title="Kubernetes Engine API"),
    "containerfilesystem": Api(host="containerfilesystem.googleapis.com", title="Container File System API"),
    "file": Api(host="file.googleapis.com", title="Cloud Filestore API", dormant=True),
    "iam": Api(host="iam.googleapis.com", title="Identity and Access Management (IAM) API", free=True),
    "lustre": Api(host="lustre.googleapis.com", title="Managed Lustre API"),
    "secretmanager": Api(host="secretmanager.googleapis.com", title="Secret Manager API", dormant=True),
    "servicenetworking": Api(
        host="servicenetworking.googleapis.com", title="Service Networking API", shared=True
    ),
    "serviceusage": Api(
        host="serviceusage.googleapis.com", title="Service Usage API", free=True, shared=True, default=True
    ),
    "storage": Api(
        host="storage.googleapis.com", title="Cloud Storage API", classic=True, anonymous=True, default=True
    ),
    "tpu": Api(host="tpu.googleapis.com", title="Cloud TPU API", dormant=True),
    "workflowexecutions": Api(
        host="workflowexecutions.googleapis.com", title="Workflow Executions API", dormant=True
    ),
    "workflows": Api(host="workflows.googleapis.com", title="Workflows API", dormant=True),
}
