"""Roles: Google's own, with the permissions that this stand-in checks, and a project's custom ones."""

from __future__ import annotations

import fnmatch
import re
from typing import TYPE_CHECKING, Any

from google.cloud.iam_admin_v1.types.iam import CreateRoleRequest, Role

from cloudrec_sandbox.gcp.api.errors import GcpError
from cloudrec_sandbox.gcp.api.registry import rest
from cloudrec_sandbox.gcp.resources import paging, store

if TYPE_CHECKING:
    from cloudrec_sandbox.gcp.api.call import Call
    from cloudrec_sandbox.gcp.api.world import World

_SEE = ("compute.*.get", "compute.*.list")
_WAIT = ("compute.globalOperations.*", "compute.regionOperations.*", "compute.zoneOperations.*")
_PLACES = ("compute.projects.get", "compute.regions.*", "compute.zones.*")
_BALANCING = tuple(
    f"compute.{name}.*"
    for name in (
        "backendServices",
        "forwardingRules",
        "globalForwardingRules",
        "healthChecks",
        "regionBackendServices",
        "regionHealthChecks",
        "targetHttpProxies",
        "targetHttpsProxies",
        "targetPools",
        "urlMaps",
    )
)
_SERVICES = ("artifactregistry", "compute", "container", "lustre", "storage")
_PROJECT = ("resourcemanager.projects.get",)

# The kinds that roles/container.developer may change, and those that it may only read.
_WORKLOADS = (
    "configMaps",
    "cronJobs",
    "customResourceDefinitions",
    "daemonSets",
    "deployments",
    "endpoints",
    "events",
    "jobs",
    "leases",
    "namespaces",
    "networkPolicies",
    "nodes",
    "persistentVolumeClaims",
    "persistentVolumes",
    "pods",
    "replicaSets",
    "resourceQuotas",
    "secrets",
    "selfSubjectAccessReviews",
    "serviceAccounts",
    "services",
    "statefulSets",
    "thirdPartyObjects",
)
_GRANTS = ("clusterRoles", "clusterRoleBindings", "roles", "roleBindings")

# Patterns of permissions by role.
PREDEFINED: dict[str, tuple[str, ...]] = {
    "roles/owner": ("*",),
    "roles/editor": tuple(
        f"{service}.*.{verb}"
        for service in (
            "artifactregistry",
            "compute",
            "container",
            "iam",
            "lustre",
            "storage",
            "serviceusage",
        )
        for verb in ("get", "list", "create", "update", "delete", "use")
    ),
    "roles/viewer": ("*.get", "*.list"),
    "roles/browser": _PROJECT,
    "roles/artifactregistry.admin": ("artifactregistry.*",),
    "roles/artifactregistry.reader": (
        "artifactregistry.*.get",
        "artifactregistry.*.list",
        "artifactregistry.repositories.downloadArtifacts",
    ),
    "roles/artifactregistry.writer": (
        "artifactregistry.*.get",
        "artifactregistry.*.list",
        "artifactregistry.repositories.downloadArtifacts",
        "artifactregistry.repositories.uploadArtifacts",
    ),
    "roles/cloudquotas.viewer": ("cloudquotas.quotas.get", "monitoring.timeSeries.list"),
    "roles/compute.admin": ("compute.*", *_PROJECT),
    "roles/compute.instanceAdmin.v1": (
        "compute.disks.*",
        "compute.instance*",
        "compute.reservations.get",
        "compute.reservations.list",
        "compute.resourcePolicies.*",
        "compute.machineTypes.*",
        "compute.acceleratorTypes.*",
        "compute.networkEndpointGroups.*",
        *_WAIT,
        *_PLACES,
    ),
    "roles/compute.networkAdmin": (
        *_BALANCING,
        *_PLACES,
        *_WAIT,
        "compute.addresses.*",
        "compute.firewalls.get",
        "compute.firewalls.list",
        "compute.globalAddresses.*",
        "compute.networkEndpointGroups.get",
        "compute.networkEndpointGroups.list",
        "compute.networkProfiles.*",
        "compute.networks.*",
        "compute.routers.*",
        "compute.routes.*",
        "compute.subnetworks.*",
        "servicenetworking.*",
    ),
    "roles/compute.networkViewer": _SEE,
    "roles/compute.securityAdmin": (
        *_PLACES,
        *_WAIT,
        "compute.firewalls.*",
        "compute.networks.get",
        "compute.networks.list",
        "compute.networks.updatePolicy",
    ),
    "roles/compute.viewer": (*_SEE, *_PROJECT),
    "roles/container.admin": ("container.*", *_PROJECT),
    "roles/container.clusterAdmin": ("container.clusters.*", "container.operations.*", *_PROJECT),
    "roles/container.clusterViewer": ("container.clusters.get", "container.clusters.list", *_PROJECT),
    "roles/container.developer": (
        *(f"container.clusters.{verb}" for verb in ("connect", "get", "list")),
        *(f"container.{noun}.*" for noun in _WORKLOADS),
        *(f"container.{noun}.{verb}" for noun in _GRANTS for verb in ("get", "list")),
        *_PROJECT,
    ),
    "roles/container.defaultNodeServiceAccount": ("logging.*", "monitoring.*"),
    "roles/container.nodeServiceAccount": ("logging.*", "monitoring.*"),
    "roles/container.serviceAgent": ("compute.*", "container.*"),
    "roles/iam.roleAdmin": ("iam.roles.*", *_PROJECT),
    "roles/iam.serviceAccountAdmin": (
        *(f"iam.serviceAccounts.{verb}" for verb in ("create", "delete", "get", "list", "update")),
        "iam.serviceAccounts.getIamPolicy",
        "iam.serviceAccounts.setIamPolicy",
        *_PROJECT,
    ),
    "roles/iam.serviceAccountTokenCreator": ("iam.serviceAccounts.getAccessToken",),
    "roles/iam.serviceAccountUser": (
        "iam.serviceAccounts.actAs",
        "iam.serviceAccounts.get",
        "iam.serviceAccounts.list",
        *_PROJECT,
    ),
    "roles/iam.workloadIdentityUser": ("iam.serviceAccounts.getAccessToken",),
    "roles/logging.logWriter": ("logging.logEntries.create",),
    "roles/lustre.admin": ("lustre.*", *_PROJECT),
    "roles/lustre.viewer": ("lustre.*.get", "lustre.*.list", *_PROJECT),
    "roles/monitoring.metricWriter": ("monitoring.timeSeries.create",),
    "roles/monitoring.viewer": ("monitoring.*.get", "monitoring.*.list"),
    "roles/resourcemanager.projectIamAdmin": (
        "resourcemanager.projects.get",
        "resourcemanager.projects.getIamPolicy",
        "resourcemanager.projects.setIamPolicy",
    ),
    "roles/servicenetworking.networksAdmin": ("servicenetworking.*",),
    "roles/serviceusage.serviceUsageAdmin": ("serviceusage.*", *_PROJECT),
    "roles/serviceusage.serviceUsageConsumer": tuple(
        f"serviceusage.services.{verb}" for verb in ("get", "list", "use")
    ),
    "roles/stackdriver.resourceMetadata.writer": ("stackdriver.resourceMetadata.write",),
    "roles/storage.admin": ("storage.*", *_PROJECT),
    "roles/storage.bucketViewer": ("storage.buckets.get", "storage.buckets.list"),
    "roles/storage.legacyBucketOwner": ("storage.buckets.*", "storage.objects.*"),
    "roles/storage.legacyBucketReader": ("storage.buckets.get", "storage.objects.list"),
    "roles/storage.legacyObjectOwner": ("storage.objects.get", "storage.objects.update"),
    "roles/storage.legacyObjectReader": ("storage.objects.get",),
    "roles/storage.objectAdmin": ("storage.objects.*", "storage.folders.*", "storage.managedFolders.*"),
    "roles/storage.objectCreator": ("storage.objects.create", "storage.folders.create"),
    "roles/storage.objectUser": (
        *(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list", "update", "move")),
        "storage.folders.*",
        "storage.multipartUploads.*",
    ),
    "roles/workflows.invoker": ("workflows.executions.create", "workflows.executions.get"),
    "roles/storage.objectViewer": ("storage.objects.get", "storage.objects.list", "storage.folders.get"),
}
_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_.]{3,64}")
_PERMISSION = re.compile(r"[a-z][A-Za-z0-9]*\.[A-Za-z0-9]+\.[A-Za-z0-9]+")
_FRONT = "/v1/projects/{project}/roles"


def exists(world: World, role: str) -> bool:
    """Return whether there is such a role."""
    return role in PREDEFINED or store.find(world, "iam", role) is not None


def fits(role: str, holder: str) -> bool:
    """Return whether a role fits a holder's policy: a bucket takes Cloud Storage's roles and custom ones."""
    if holder.startswith("b/"):
        return role.startswith(("roles/storage.", "projects/"))
    if "/repositories/" in holder:
        return role.startswith(("roles/artifactregistry.", "projects/", "roles/owner", "roles/viewer"))
    return not role.startswith("roles/storage.legacy")


def gives(world: World, role: str, permission: str) -> bool:
    """Return whether a role has a permission."""
    return any(fnmatch.fnmatchcase(permission, pattern) for pattern in permissions(world, role))


def permissions(world: World, role: str) -> tuple[str, ...]:
    """Return the permissions of a role; those of Google's roles may be patterns."""
    if role in PREDEFINED:
        return PREDEFINED[role]
    found = store.find(world, "iam", role)
    return tuple(found.document.get("includedPermissions", [])) if found else ()


@rest("iam", "projects.roles.create", "POST", _FRONT, body=CreateRoleRequest, permission="iam.roles.create")
def create(call: Call) -> dict[str, Any]:
    """Create a custom role of the project."""
    name, wishes = call.body.get("roleId", ""), call.body.get("role", {})
    path = f"projects/{call.project}/roles/{name}"
    if not _CUSTOM_ID.fullmatch(name):
        raise GcpError("INVALID_ARGUMENT", f"The role ID '{name}' must match {_CUSTOM_ID.pattern}.")
    if store.find(call.world, "iam", path):
        raise GcpError("ALREADY_EXISTS", f"A role named {name} in projects/{call.project} already exists.")
    _check(wishes)
    document = {"stage": "ALPHA", **wishes, "name": path, "etag": "BwX="}
    store.add(call.world, "iam", "roles", path, document)
    return dict(document)


def _check(role: dict[str, Any]) -> None:
    for permission in role.get("includedPermissions", []):
        if not _PERMISSION.fullmatch(permission):
            raise GcpError("INVALID_ARGUMENT", f"Permission {permission} is not valid.")


@rest("iam", "projects.roles.get", "GET", _FRONT + "/{role}", permission="iam.roles.get")
def get(call: Call) -> dict[str, Any]:
    """Return a custom role of the project."""
    return dict(_need(call).document)


@rest(
    "iam",
    "projects.roles.patch",
    "PATCH",
    _FRONT + "/{role}",
    body=Role,
    query=("updateMask",),
    permission="iam.roles.update",
)
def patch(call: Call) -> dict[str, Any]:
    """Change a custom role of the project."""
    document = _need(call).document
    _check(call.body)
    document.update({name: value for name, value in call.body.items() if name != "name"})
    return dict(document)


@rest(
    "iam",
    "projects.roles.list",
    "GET",
    _FRONT,
    query=("pageSize", "pageToken", "view", "showDeleted"),
    permission="iam.roles.list",
)
def list_(call: Call) -> dict[str, Any]:
    """Return the custom roles of the project."""
    rows = store.within(call.world, "iam", f"projects/{call.project}/roles/", "roles")
    items, token = paging.page([dict(row.document) for row in rows], call)
    return {"roles": items, **({"nextPageToken": token} if token else {})}


@rest("iam", "projects.roles.delete", "DELETE", _FRONT + "/{role}", permission="iam.roles.delete")
def delete(call: Call) -> dict[str, Any]:
    """Delete a custom role of the project."""
    found = _need(call)
    store.remove(call.world, "iam", found.path)
    return {**found.document, "deleted": True}


def _need(call: Call) -> store.Resource:
    path = f"projects/{call.project}/roles/{call.params['role']}"
    found = store.find(call.world, "iam", path)
    if found is None:
        raise GcpError("NOT_FOUND", f"The role named {path} was not found.")
    return found
