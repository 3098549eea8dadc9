"""No identity of a cluster reaches more permissions on Google Cloud than it was given.

The paths are Rhino Security's (https://github.com/RhinoSecurityLabs/GCP-IAM-Privilege-Escalation) and those
that change a policy, a role or what runs as another account.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.api_core.exceptions import Forbidden, GoogleAPICallError

from tests.contract.gcp.support_identities import IDENTITIES, THEIRS, Estate
from tests.contract.gcp.test_bystanders import kept
from tests.contract.gcp.test_deployer_role import ACTS_AS, ESCALATES, ME
from tests.sandbox.gcp.support import PROJECT, REGION
from tests.sandbox.gcp.support import Gcp as Cloud

PERMISSIONS = sorted({
    *ESCALATES,
    "artifactregistry.repositories.setIamPolicy",
    "cloudbuild.builds.update",
    "cloudscheduler.jobs.run",
    "compute.disks.setIamPolicy",
    "compute.instances.osAdminLogin",
    "container.clusterRoles.escalate",
    "container.clusters.getCredentials",
    "iam.serviceAccounts.create",
    "iam.serviceAccounts.getOpenIdToken",
    "iam.serviceAccounts.setIamPolicy",
    "iam.workloadIdentityPoolProviders.create",
    "resourcemanager.folders.setIamPolicy",
    "run.services.setIamPolicy",
    "secretmanager.versions.access",
    "storage.buckets.setIamPolicy",
})  # fmt: skip
# To make a job or a workflow also needs actAs on its account, which a deployer has on two accounts.
HELD = {"deployer": ACTS_AS, "end": {"workflows.executions.create"}}
_HERE = f"projects/{PROJECT}/locations/{REGION}"
_LATEST = {"options": {"requestedPolicyVersion": 3}}


def _project_policy(estate: Estate) -> int:
    found = estate.cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", _LATEST)
    policy = found[1] if found[0] == 200 else {"bindings": []}
    policy = {**policy, "version": 3, "bindings": [
        *policy["bindings"], {"role": "roles/editor", "members": [ME]},
    ]}  # fmt: skip
    return estate.cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0]


def _rest(method: str, path: str, body: Any = None) -> Callable[[Estate], int]:
    return lambda estate: estate.cloud.rest(method, path, body if body is not None else {})[0]


def _pool(estate: Estate) -> int:
    pool = {"name": "mine", "initial_node_count": 1,
            "config": {"machine_type": "e2-standard-4", "service_account": THEIRS}}  # fmt: skip
    return _over_grpc(lambda: estate.cloud.gke.create_node_pool(parent=estate.cluster, node_pool=pool))


def _foreign_pool(estate: Estate) -> int:
    pool = {"name": "mine", "initial_node_count": 1, "config": {"machine_type": "e2-standard-4"}}
    path = estate.planted["cluster"]
    return _over_grpc(lambda: estate.cloud.gke.create_node_pool(parent=path, node_pool=pool))


def _over_grpc(call: Callable[[], object]) -> int:
    try:
        call()
    except Forbidden:
        return 403
    except GoogleAPICallError as error:
        return int(error.code or 500)
    return 200


_JOB: dict[str, Any] = {
    "name": f"{_HERE}/jobs/mine",
    "schedule": "0 * * * *",
    "httpTarget": {"uri": "https://compute.googleapis.com/", "oauthToken": {"serviceAccountEmail": THEIRS}},
}
_STEPS = {"sourceContents": "main:\n  steps:\n    - done:\n        return: 1\n", "serviceAccount": THEIRS}
_USER = {"policy": {"bindings": [{"role": "roles/iam.serviceAccountTokenCreator", "members": [ME]}]}}
_ROLE = {"roleId": "mine", "role": {"title": "x", "includedPermissions": ["compute.instances.create"]}}
# Path -> the permissions that open it, and the calls.
CALLS: dict[str, tuple[tuple[str, ...], Callable[[Estate], int]]] = {
    "a role in the project": (("resourcemanager.projects.setIamPolicy",), _project_policy),
    "the tokens of an account": (
        ("iam.serviceAccounts.setIamPolicy",),
        _rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts/{THEIRS}:setIamPolicy", _USER),
    ),
    "another account": (
        ("iam.serviceAccounts.create",),
        _rest("POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "another"}),
    ),
    "another role": (("iam.roles.create",), _rest("POST", f"/v1/projects/{PROJECT}/roles", _ROLE)),
    "more permissions of a role": (
        ("iam.roles.update",),
        _rest(
            "PATCH",
            f"/v1/projects/{PROJECT}/roles/cloudrecDeployer?updateMask=includedPermissions",
            {"includedPermissions": ["compute.instances.create"]},
        ),
    ),
    "a job that calls as a foreign account": (
        ("cloudscheduler.jobs.create", "iam.serviceAccounts.actAs"),
        _rest("POST", f"/v1/{_HERE}/jobs", _JOB),
    ),
    "a workflow that calls as a foreign account": (
        ("workflows.workflows.create", "iam.serviceAccounts.actAs"),
        _rest("POST", f"/v1/{_HERE}/workflows?workflowId=mine", _STEPS),
    ),
    "other steps of a foreign workflow": (
        ("workflows.workflows.update", "iam.serviceAccounts.actAs"),
        _rest("PATCH", f"/v1/{_HERE}/workflows/theirs?updateMask=sourceContents", _STEPS),
    ),
    "nodes with a foreign account": (("container.clusters.update", "iam.serviceAccounts.actAs"), _pool),
    "nodes in a foreign cluster": (("container.clusters.update",), _foreign_pool),
    "a foreign repository's policy": (
        ("artifactregistry.repositories.setIamPolicy",),
        _rest("POST", f"/v1/{_HERE}/repositories/theirs:setIamPolicy", _USER),
    ),
    "a foreign bucket's policy": (
        ("storage.buckets.setIamPolicy",),
        _rest("PUT", f"/storage/v1/b/planted-{REGION}/iam", {"bindings": []}),
    ),
}


@pytest.mark.parametrize("who", IDENTITIES)
def test_no_identity_holds_a_permission_that_leads_to_others(estate: Estate, who: str) -> None:
    estate.become(who)
    found = estate.held(PERMISSIONS[:30]) | estate.held(PERMISSIONS[30:])
    assert found == HELD.get(who, set())
    print(f"{who}: {len(PERMISSIONS) - len(found)} of {len(PERMISSIONS)} are not held")


@pytest.mark.parametrize("who", IDENTITIES)
def test_each_call_that_leads_to_others_is_refused(estate: Estate, who: str) -> None:
    estate.become(who)
    assert {what: call(estate) for what, (_, call) in CALLS.items()} == dict.fromkeys(CALLS, 403)


def test_each_call_succeeds_with_the_permissions_that_it_needs(estate: Estate) -> None:
    for what, (needed, call) in CALLS.items():
        with kept(estate.cloud):
            estate.become("pod", *map(estate.holding, needed))
            assert call(estate) not in (401, 403), what


def test_a_deployer_may_grant_the_guards_role_alone_and_that_on_every_cluster(estate: Estate) -> None:
    """README.md of infra/gcp says so: clusters have no policies, and IAM cannot limit a grant's condition."""
    cloud: Cloud = estate.cloud
    with kept(cloud):
        estate.become("deployer")
        policy = cloud.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", _LATEST)[1]
        policy["bindings"].append({"role": f"projects/{PROJECT}/roles/cloudrecGuard", "members": [ME]})
        assert cloud.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": policy})[0] == 200
        cloud.advance(600)
        asked = ["container.clusters.update", "container.clusters.delete", "container.secrets.get"]
        assert estate.held(asked) == {"container.clusters.update"}
