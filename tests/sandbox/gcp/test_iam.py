"""Service accounts, roles, and the project's policy."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sandbox.gcp.support import NUMBER, PROJECT, Gcp
from tests.sandbox.gcp.support_compute import turned_down

SEEN_S, LAG_S = 10.0, 3.0
ACCOUNTS = f"/v1/projects/{PROJECT}/serviceAccounts"
HOLDER = f"/v3/projects/{PROJECT}"
EMAIL = f"cloudrec-nodes@{PROJECT}.iam.gserviceaccount.com"
NODES = f"serviceAccount:{EMAIL}"
WRITER = "roles/logging.logWriter"


def _create(gcp: Gcp, name: str = "cloudrec-nodes") -> tuple[int, Any]:
    return gcp.rest("POST", ACCOUNTS, {"accountId": name, "serviceAccount": {"displayName": "Nodes"}})


def _read(gcp: Gcp) -> dict[str, Any]:
    status, policy = gcp.rest("POST", f"{HOLDER}:getIamPolicy", {"options": {"requestedPolicyVersion": 3}})
    assert status == 200
    found: dict[str, Any] = policy
    return found


def _write(gcp: Gcp, policy: dict[str, Any]) -> tuple[int, Any]:
    return gcp.rest("POST", f"{HOLDER}:setIamPolicy", {"policy": policy})


def _with(policy: dict[str, Any], role: str, *members: str, **more: Any) -> dict[str, Any]:
    return {**policy, "bindings": [*policy["bindings"], {"role": role, "members": list(members), **more}]}


def _members(policy: dict[str, Any], role: str) -> list[str]:
    return [who for binding in policy["bindings"] if binding["role"] == role for who in binding["members"]]


def _error_of(answer: tuple[int, Any]) -> tuple[int, str]:
    status, document = answer
    return status, document["error"]["status"]


def test_a_new_service_account_is_not_visible_at_once(gcp: Gcp) -> None:
    assert _create(gcp)[1]["email"] == EMAIL
    assert _error_of(gcp.rest("GET", f"{ACCOUNTS}/{EMAIL}")) == (404, "NOT_FOUND")
    assert gcp.rest("GET", ACCOUNTS)[1]["accounts"] == []
    gcp.advance(SEEN_S)
    assert gcp.rest("GET", f"{ACCOUNTS}/{EMAIL}")[1]["displayName"] == "Nodes"
    assert [row["email"] for row in gcp.rest("GET", ACCOUNTS)[1]["accounts"]] == [EMAIL]


def test_an_existing_service_account_is_refused_even_before_it_is_visible(gcp: Gcp) -> None:
    _create(gcp)
    assert _error_of(_create(gcp)) == (409, "ALREADY_EXISTS")


@pytest.mark.parametrize("name", ["short", "x" * 31, "Upper-case", "1-digit", "dash-"])
def test_a_service_account_with_an_invalid_name_is_refused(gcp: Gcp, name: str) -> None:
    assert _error_of(_create(gcp, name)) == (400, "INVALID_ARGUMENT")


def test_a_policy_with_an_invisible_or_deleted_account_is_refused(gcp: Gcp) -> None:
    _create(gcp)
    policy = _with(_read(gcp), WRITER, NODES)
    status, document = _write(gcp, policy)
    assert (status, document["error"]["message"]) == (400, f"Service account {EMAIL} does not exist.")
    gcp.advance(SEEN_S)
    assert gcp.rest("DELETE", f"{ACCOUNTS}/{EMAIL}")[0] == 200
    assert _error_of(_write(gcp, policy)) == (400, "INVALID_ARGUMENT")


def test_a_deleted_account_remains_in_policies_and_a_new_one_inherits_nothing(
    gcp: Gcp,
) -> None:
    unique = _create(gcp)[1]["uniqueId"]
    gcp.advance(SEEN_S)
    _write(gcp, _with(_read(gcp), WRITER, NODES))
    gcp.rest("DELETE", f"{ACCOUNTS}/{EMAIL}")
    buried = f"deleted:{NODES}?uid={unique}"
    assert _members(_read(gcp), WRITER) == [buried]
    _create(gcp)
    gcp.advance(SEEN_S)
    policy = _read(gcp)
    assert _members(policy, WRITER) == [buried]
    policy["bindings"] = [each for each in policy["bindings"] if each["role"] != WRITER]
    assert _write(gcp, policy)[0] == 200
    gcp.advance(LAG_S)
    assert _members(_read(gcp), WRITER) == []


def test_a_policy_with_an_old_etag_is_refused(gcp: Gcp) -> None:
    old = _read(gcp)
    assert _write(gcp, _with(old, WRITER, "user:a@example.com"))[0] == 200
    status, document = _write(gcp, _with(old, WRITER, "user:b@example.com"))
    assert (status, document["error"]["status"]) == (409, "ABORTED")
    assert "concurrent policy changes" in document["error"]["message"]


def test_a_policy_without_an_etag_overwrites(gcp: Gcp) -> None:
    old = _read(gcp)
    _write(gcp, _with(old, WRITER, "user:a@example.com"))
    del old["etag"]
    assert _write(gcp, _with(old, WRITER, "user:b@example.com"))[0] == 200
    gcp.advance(LAG_S)
    assert _members(_read(gcp), WRITER) == ["user:b@example.com"]


def test_a_policy_is_eventually_consistent(gcp: Gcp) -> None:
    before = _read(gcp)
    _write(gcp, _with(before, WRITER, "user:a@example.com"))
    assert _read(gcp) == before
    gcp.advance(LAG_S)
    assert _members(_read(gcp), WRITER) == ["user:a@example.com"]


@pytest.mark.parametrize(
    ("role", "member", "words"),
    [
        ("roles/none.such", "user:a@example.com", "does not exist"),
        (WRITER, "a@example.com", "unknown type"),
        (WRITER, "allUsers", "not allowed"),
        (WRITER, f"serviceAccount:nobody@{PROJECT}.iam.gserviceaccount.com", "does not exist"),
        (WRITER, "serviceAccount:other.svc.id.goog[ns/sa]", "Identity Pool does not exist"),
        ("roles/storage.legacyBucketReader", "user:a@example.com", "not supported"),
    ],
)
def test_a_policy_with_unknown_roles_or_members_is_refused(
    gcp: Gcp, role: str, member: str, words: str
) -> None:
    status, document = _write(gcp, _with(_read(gcp), role, member))
    assert status == 400
    assert words in document["error"]["message"]


def test_a_policy_with_conditions_needs_version_3(gcp: Gcp) -> None:
    condition = {"title": "cloudrec", "expression": 'resource.name == "x"'}
    policy = _with(_read(gcp), WRITER, "user:a@example.com", condition=condition)
    assert _error_of(_write(gcp, {**policy, "version": 1})) == (400, "INVALID_ARGUMENT")
    assert _write(gcp, {**policy, "version": 3})[0] == 200


def test_a_policy_without_an_owner_is_refused(gcp: Gcp) -> None:
    policy = _read(gcp)
    policy["bindings"] = [each for each in policy["bindings"] if each["role"] != "roles/owner"]
    assert _error_of(_write(gcp, policy)) == (400, "INVALID_ARGUMENT")


def test_enforced_permissions_are_those_of_the_roles_of_the_caller(gcp: Gcp) -> None:
    role = f"projects/{PROJECT}/roles/deployer"
    wish = {"roleId": "deployer", "role": {"includedPermissions": ["compute.networks.list"]}}
    assert gcp.rest("POST", f"/v1/projects/{PROJECT}/roles", wish)[0] == 200
    me = f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"
    policy = _read(gcp)
    policy["bindings"] = [{"role": "roles/owner", "members": ["user:owner@example.com"]}]
    assert _write(gcp, _with(policy, role, me))[0] == 200
    gcp.control(enforce_iam=True)
    networks = gcp.compute("Networks")
    assert list(networks.list(project=PROJECT)) == []
    with turned_down(403, "forbidden", "compute.networks.create"):
        networks.insert_unary(project=PROJECT, network_resource={"name": "net"})
    status, document = gcp.rest("GET", ACCOUNTS)
    assert (status, document["error"]["details"][0]["reason"]) == (403, "IAM_PERMISSION_DENIED")
    asked = {"permissions": ["compute.networks.list", "compute.networks.create"]}
    told = gcp.rest("POST", f"{HOLDER}:testIamPermissions", asked)[1]
    assert told == {"permissions": ["compute.networks.list"]}


LIMITED = "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly(['" + WRITER + "'])"


def test_a_condition_limits_the_roles_whose_members_may_be_changed(gcp: Gcp) -> None:
    me = f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"
    policy = _read(gcp)
    policy["bindings"] = [{"role": "roles/owner", "members": ["user:owner@example.com"]}]
    condition = {"title": "limited", "expression": LIMITED}
    policy = _with(policy, "roles/resourcemanager.projectIamAdmin", me, condition=condition)
    assert _write(gcp, {**policy, "version": 3})[0] == 200
    gcp.advance(60)
    gcp.control(enforce_iam=True)
    refused = _write(gcp, {**_with(_read(gcp), "roles/owner", me), "version": 3})
    assert (refused[0], refused[1]["error"]["details"][0]["reason"]) == (403, "IAM_PERMISSION_DENIED")
    assert _write(gcp, {**_with(_read(gcp), WRITER, me), "version": 3})[0] == 200


def test_a_project_is_found_by_its_id_and_its_number(gcp: Gcp) -> None:
    for name in (PROJECT, NUMBER):
        status, document = gcp.rest("GET", f"/v3/projects/{name}")
        assert (status, document["name"], document["projectId"]) == (200, f"projects/{NUMBER}", PROJECT)
    assert _error_of(gcp.rest("GET", "/v3/projects/not-there")) == (403, "PERMISSION_DENIED")
