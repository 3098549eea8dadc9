"""Enforced permissions of GKE: its own, and actAs on the nodes' service account."""

from __future__ import annotations

import pytest

from tests.sandbox.gcp.support import PROJECT, Gcp, refused
from tests.sandbox.gcp.support_gke import PARENT, network, subnetwork, wish

ACCOUNT = f"nodes-of-one@{PROJECT}.iam.gserviceaccount.com"
BASE = ["container.clusters.get", "container.clusters.list"]


@pytest.fixture
def strict(gcp: Gcp) -> Gcp:
    network(gcp)
    subnetwork(gcp)
    status, _ = gcp.rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "nodes-of-one"})
    assert status == 200
    gcp.advance(60)
    return gcp


def grant(gcp: Gcp, *permissions: str) -> None:
    """Let the caller have these permissions and no others from now on."""
    role = {"roleId": "deployer", "role": {"title": "Deployer", "includedPermissions": list(permissions)}}
    assert gcp.rest("POST", f"/v1/projects/{PROJECT}/roles", role)[0] == 200
    policy = gcp.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", {})[1]
    member = f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"
    policy["bindings"] = [
        {"role": f"projects/{PROJECT}/roles/deployer", "members": [member]},
        {"role": "roles/owner", "members": ["user:somebody@example.com"]},
    ]
    status, answer = gcp.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})
    assert status == 200, answer
    gcp.advance(600)
    gcp.control(enforce_iam=True)


def test_a_missing_permission_is_named(strict: Gcp) -> None:
    grant(strict, *BASE)
    strict.gke.list_clusters(parent=PARENT)
    with refused("PERMISSION_DENIED", "container.clusters.create", reason="IAM_PERMISSION_DENIED"):
        strict.gke.create_cluster(parent=PARENT, cluster=wish())


def test_assigning_a_service_account_to_nodes_needs_act_as(strict: Gcp) -> None:
    config = {"machine_type": "e2-standard-4", "service_account": ACCOUNT}
    pools = [{"name": "cpu", "initial_node_count": 1, "config": config}]
    grant(strict, *BASE, "container.clusters.create")
    with refused("PERMISSION_DENIED", "iam.serviceAccountUser", ACCOUNT):
        strict.gke.create_cluster(parent=PARENT, cluster=wish(node_pools=pools))
    strict.gke.create_cluster(parent=PARENT, cluster=wish())
