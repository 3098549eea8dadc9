"""Each identity of a cluster may do to what others have in the project only what README.md lists.

The permissions have the names of Google's reference (cloud.google.com/iam/docs/permissions-reference); the
stand-in evaluates them in testIamPermissions as in calls, and serves the calls of most kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contract.gcp.support_identities import IDENTITIES, Estate
from tests.contract.gcp.test_deployer_role import ME
from tests.sandbox.gcp.support import PROJECT
from tests.sandbox.gcp.support import Gcp as Cloud

# Kind -> the permissions that read its secrets or data, change or delete it.
TAKES = {
    "network": ("compute.networks.delete", "compute.networks.update", "compute.networks.updatePolicy"),
    "subnetwork of the network": ("compute.subnetworks.delete", "compute.subnetworks.update"),
    "subnetwork": ("compute.subnetworks.setPrivateIpGoogleAccess", "compute.subnetworks.setIamPolicy"),
    "instance": ("compute.instances.delete", "compute.instances.setMetadata", "compute.instances.osLogin",
                 "compute.instances.getSerialPortOutput"),
    "disk": ("compute.disks.delete", "compute.disks.update", "compute.disks.createSnapshot",
             "compute.disks.useReadOnly"),
    "regional disk": ("compute.disks.resize", "compute.disks.setIamPolicy"),
    "external address": ("compute.addresses.delete", "compute.addresses.use"),
    "internal address": ("compute.addresses.deleteInternal", "compute.addresses.setLabels"),
    "router": ("compute.routers.delete", "compute.routers.update"),
    "forwarding rule": ("compute.forwardingRules.delete", "compute.forwardingRules.update"),
    "VPN gateway": ("compute.vpnGateways.delete", "compute.vpnGateways.use"),
    "classic VPN gateway": ("compute.targetVpnGateways.delete",),
    "VPN tunnel": ("compute.vpnTunnels.delete",),
    "reservation": ("compute.reservations.delete", "compute.reservations.update"),
    "instance template": ("compute.instanceTemplates.delete", "compute.instanceTemplates.useReadOnly"),
    "instance group manager": (
        "compute.instanceGroupManagers.delete", "compute.instanceGroupManagers.update",
    ),
    "instance group": ("compute.instanceGroups.delete", "compute.instanceGroups.update"),
    "resource policy": ("compute.resourcePolicies.delete", "compute.resourcePolicies.update"),
    "Filestore instance": ("file.instances.delete", "file.instances.update"),
    "TPU node": ("tpu.nodes.delete", "tpu.nodes.update"),
    "Scheduler job": ("cloudscheduler.jobs.delete", "cloudscheduler.jobs.update", "cloudscheduler.jobs.run"),
    "bucket": ("storage.buckets.delete", "storage.buckets.update", "storage.buckets.setIamPolicy"),
    "object": ("storage.objects.get", "storage.objects.update", "storage.objects.delete"),
    "Memorystore instance": ("redis.instances.delete", "redis.instances.getAuthString"),
    "snapshot": ("compute.snapshots.delete", "compute.snapshots.useReadOnly"),
    "image": ("compute.images.delete", "compute.images.useReadOnly"),
    "machine image": ("compute.machineImages.delete", "compute.machineImages.useReadOnly"),
    "secret": (
        "secretmanager.versions.access", "secretmanager.secrets.update", "secretmanager.secrets.delete",
    ),
    "firewall rule": ("compute.firewalls.delete", "compute.firewalls.update"),
    "image repository": (
        "artifactregistry.repositories.downloadArtifacts",
        "artifactregistry.repositories.uploadArtifacts",
        "artifactregistry.repositories.update",
        "artifactregistry.repositories.delete",
    ),
    "service account": (
        "iam.serviceAccounts.delete", "iam.serviceAccounts.update", "iam.serviceAccounts.actAs",
    ),
    "role": ("iam.roles.update", "iam.roles.delete"),
    "workflow": ("workflows.workflows.delete", "workflows.workflows.update", "workflows.executions.create",
                 "workflows.executions.get"),
    "cluster": ("container.clusters.delete", "container.clusters.update", "container.clusters.getCredentials",
                "container.secrets.get", "container.pods.exec"),
}  # fmt: skip
# IAM knows no condition by which these differ from those of others: README.md of infra/gcp lists them.
RESIDUAL = {
    "deployer": {
        "artifactregistry.repositories.delete",
        "artifactregistry.repositories.update",
        "cloudscheduler.jobs.delete",
        "cloudscheduler.jobs.update",
        "compute.networks.delete",
        "compute.networks.updatePolicy",
        "compute.resourcePolicies.delete",
        "compute.routers.delete",
        "compute.routers.update",
        "compute.subnetworks.delete",
        "compute.subnetworks.setPrivateIpGoogleAccess",
        "workflows.workflows.delete",
    },
    "nodes": {"artifactregistry.repositories.downloadArtifacts"},
    "end": {"workflows.executions.create"},
}


@contextmanager
def kept(cloud: Cloud) -> Iterator[None]:
    """The stand-in's state is as before afterwards."""
    cloud.ask("POST", "/save", {"name": "kept"})
    yield
    cloud.ask("POST", "/restore", {"name": "kept"})


@pytest.mark.parametrize("who", IDENTITIES)
def test_an_identity_holds_no_permission_on_what_others_have(estate: Estate, who: str) -> None:
    assert set(estate.planted) == set(TAKES)
    estate.become(who)
    asked = sorted({each for permissions in TAKES.values() for each in permissions})
    found = {each for start in range(0, len(asked), 50) for each in estate.held(asked[start : start + 50])}
    theirs = estate.planted["service account"]
    found |= estate.held(["iam.serviceAccounts.actAs", "iam.serviceAccounts.getAccessToken"], theirs)
    assert found == RESIDUAL.get(who, set())
    of_kinds = {kind for kind, permissions in TAKES.items() if found & set(permissions)}
    print(f"{who}: {len(TAKES) - len(of_kinds)} of {len(TAKES)} kinds cannot be touched")


def deletions(estate: Estate) -> dict[str, tuple[str, str]]:
    """The request that deletes each bystander whose deletion the stand-in serves."""
    made = {}
    for kind, path in estate.planted.items():
        if "/global/" in path or "/zones/" in path or "/regions/" in path:
            made[kind] = ("DELETE", f"/compute/v1/{path}")
    for kind in ("Scheduler job", "image repository", "service account", "role", "workflow"):
        made[kind] = ("DELETE", f"/v1/{estate.planted[kind]}")
    made["bucket"] = ("DELETE", f"/storage/v1/b/{estate.planted['bucket']}")
    made["object"] = ("DELETE", f"/storage/v1/b/{estate.planted['object']}")
    return made


def refusals(estate: Estate) -> dict[str, bool]:
    """Whether each deletion is refused for want of a permission, of those that the stand-in serves."""
    found = {}
    for kind, (method, path) in deletions(estate).items():
        with kept(estate.cloud):
            status, answer = estate.cloud.rest(method, path)
        if status != 501:
            found[kind] = status == 403
        assert status != 404, answer
    return found


@pytest.mark.parametrize("who", IDENTITIES)
def test_deletions_of_what_others_have_are_refused(estate: Estate, who: str) -> None:
    estate.become(who)
    before = set(estate.cloud.state())
    found = refusals(estate)
    assert len(found) > 15, found
    held = RESIDUAL.get(who, set())
    expected = {kind for kind in found if not any(each in held for each in TAKES[kind] if "delete" in each)}
    if who == "deployer":
        expected -= {"subnetwork"}  # as of the other one
    assert {kind for kind, refused in found.items() if refused} >= expected
    assert set(estate.cloud.state()) == before
    print(f"{who}: {sum(found.values())} of {len(found)} deletions are refused")


@pytest.mark.parametrize("who", IDENTITIES)
def test_a_foreign_cluster_bucket_and_secret_stay_closed(estate: Estate, who: str) -> None:
    estate.become(who)
    cloud, bucket = estate.cloud, estate.planted["bucket"]
    assert cloud.rest("GET", f"/storage/v1/b/{estate.planted['object']}?alt=media")[0] == 403
    assert cloud.rest("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name=y", {})[0] == 403
    assert cloud.rest("PUT", f"/storage/v1/b/{bucket}/iam", {"bindings": []})[0] == 403
    assert cloud.rest("PATCH", f"/storage/v1/b/{bucket}", {"labels": {"a": "b"}})[0] == 403


def test_a_guard_reaches_no_cluster_whose_name_begins_like_its_own(estate: Estate) -> None:
    estate.become("guard")
    own = estate.cluster
    with pytest.raises(Exception, match=r"container\.clusters\.get"):
        estate.cloud.gke.get_cluster(name=f"{own}2")
    assert estate.cloud.gke.get_cluster(name=own).name == "cloudrec-t"


def test_a_role_without_its_condition_is_found(estate: Estate) -> None:
    role = f"projects/{PROJECT}/roles/cloudrecFirewalls"
    estate.become("pod", {"role": role, "members": [ME]})
    assert estate.held(["compute.firewalls.delete"]) == {"compute.firewalls.delete"}
    assert not refusals(estate)["firewall rule"]
