"""Identities, what they are trusted by, and roles: refused and delayed as Azure does it."""

from __future__ import annotations

import base64
import json
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError
from azure.identity import ClientAssertionCredential

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused

_NETWORK_CONTRIBUTOR = "4d97b98b-1d4f-4787-a291-c67834d212e7"
_CONTRIBUTOR = "b24988ac-6180-42a0-ab88-20f7382dd24c"
_ACCESS_ADMINISTRATOR = "f58310d9-a9f6-439a-9e8d-f62e7b41a168"
_ACR_PULL = "7f951dda-4ed3-4680-a7ca-43fe172d538d"
_OTHER = "99999999-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def _group(azure: Azure) -> None:
    azure.group()


@pytest.fixture
def identities(azure: Azure) -> Any:
    return azure.client("msi").user_assigned_identities


@pytest.fixture
def assignments(azure: Azure) -> Any:
    return azure.client("authorization").role_assignments


def _identity(azure: Azure, name: str = "one", *, old: bool = True) -> Any:
    made = azure.client("msi").user_assigned_identities.create_or_update(GROUP, name, {"location": LOCATION})
    if old:
        azure.advance(60)
    return made


def _scope(azure: Azure) -> str:
    return f"/subscriptions/{azure.subscription}/resourceGroups/{GROUP}"


def _grant(azure: Azure, principal: str, role: str = _NETWORK_CONTRIBUTOR, **changes: Any) -> Any:
    scope = changes.pop("scope", _scope(azure))
    name = changes.pop("name", str(uuid5(NAMESPACE_URL, f"{scope} {principal} {role}")))
    properties = {
        "roleDefinitionId": f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization/"
        f"roleDefinitions/{role}",
        "principalId": principal,
        "principalType": "ServicePrincipal",
        **changes,
    }
    client = azure.client("authorization").role_assignments
    return client.create(scope, name, {"properties": properties})


def _credential(
    azure: Azure, name: str = "pod", subject: str = "system:serviceaccount:a:b", **more: Any
) -> Any:
    properties = {
        "issuer": "https://oidc.example",
        "subject": subject,
        "audiences": ["api://AzureADTokenExchange"],
    }
    client = azure.client("msi").federated_identity_credentials
    return client.create_or_update(GROUP, "one", name, {"properties": properties | more})


def test_a_recreated_identity_is_another_principal(azure: Azure, identities: Any) -> None:
    first = _identity(azure)
    assert (
        identities.create_or_update(GROUP, "one", {"location": LOCATION}).principal_id == first.principal_id
    )
    identities.delete(GROUP, "one")
    with pytest.raises(ResourceNotFoundError):
        identities.get(GROUP, "one")
    assert _identity(azure).principal_id != first.principal_id
    assert str(UUID(first.client_id)) == first.client_id


def test_a_new_identity_is_not_yet_a_principal(azure: Azure) -> None:
    made = _identity(azure, old=False)
    with refused("PrincipalNotFound", "replication delay", status=400):
        _grant(azure, made.principal_id)
    azure.advance(60)
    _grant(azure, made.principal_id)


def test_the_type_of_a_principal_must_match(azure: Azure) -> None:
    made = _identity(azure)
    with refused("UnmatchedPrincipalType", "User", status=400):
        _grant(azure, made.principal_id, principalType=None)


def test_role_assignments_are_identified_by_name(azure: Azure) -> None:
    made = _identity(azure)
    first = _grant(azure, made.principal_id)
    assert _grant(azure, made.principal_id, description="a word").name == first.name
    with refused("RoleAssignmentExists", status=409):
        _grant(azure, made.principal_id, name="00000000-0000-4000-8000-000000000001")
    other = _identity(azure, "two")
    with refused("RoleAssignmentUpdateNotPermitted", status=400):
        _grant(azure, other.principal_id, name=first.name)
    with refused("RoleAssignmentUpdateNotPermitted", status=400):
        _grant(azure, made.principal_id, name=first.name, scope=f"/subscriptions/{azure.subscription}")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"name": "no-guid"}, "InvalidRoleAssignmentId"),
        ({"role": "00000000-0000-4000-8000-000000000009"}, "RoleDefinitionDoesNotExist"),
        ({"noSuch": True}, "InvalidRequestContent"),
    ],
)
def test_an_invalid_role_assignment_is_refused(azure: Azure, changes: dict[str, Any], code: str) -> None:
    made = _identity(azure)
    status, _, told = _put_raw(azure, made.principal_id, **changes)
    assert (status // 100, told["error"]["code"]) == (4, code)


def _put_raw(azure: Azure, principal: str, **changes: Any) -> tuple[int, dict[str, str], Any]:
    role = changes.pop("role", _NETWORK_CONTRIBUTOR)
    name = changes.pop("name", "00000000-0000-4000-8000-000000000001")
    definition = f"/providers/Microsoft.Authorization/roleDefinitions/{role}"
    body = {
        "properties": {
            "roleDefinitionId": definition,
            "principalId": principal,
            "principalType": "ServicePrincipal",
            **changes,
        }
    }
    path = f"{_scope(azure)}/providers/Microsoft.Authorization/roleAssignments/{name}?api-version=2022-04-01"
    return azure.raw("PUT", path, body)


def test_a_role_assignment_needs_an_existing_scope(azure: Azure) -> None:
    made = _identity(azure)
    with refused("ResourceNotFound", "registries", status=404):
        _grant(azure, made.principal_id, scope=azure.id("Microsoft.ContainerRegistry/registries", "none"))
    with refused("ResourceGroupNotFound", status=404):
        _grant(azure, made.principal_id, scope=f"{_scope(azure)}-none")


def test_a_new_role_assignment_is_visible_intermittently(azure: Azure, assignments: Any) -> None:
    azure.control(lag_s={"role-assignments": 30})
    made = _grant(azure, _identity(azure).principal_id)
    looks = [azure.raw("GET", f"{made.id}?api-version=2022-04-01") for _ in range(4)]
    assert {status for status, _, _ in looks} == {200, 404}
    missed = next(told for status, _, told in looks if status == 404)
    assert missed["error"]["code"] == "RoleAssignmentNotFound"
    assert made.id not in [row.id for row in assignments.list_for_scope(_scope(azure))]
    azure.advance(30)
    assert assignments.get(_scope(azure), made.name).id == made.id


def test_role_assignment_lists_include_parent_and_child_scopes(azure: Azure, assignments: Any) -> None:
    made = _identity(azure)
    inner = _grant(azure, made.principal_id, scope=made.id)
    upper = _grant(azure, made.principal_id, scope=f"/subscriptions/{azure.subscription}")
    there = {row.id for row in assignments.list_for_scope(_scope(azure))}
    assert {inner.id, upper.id} <= there
    above = {row.id for row in assignments.list_for_scope(_scope(azure), filter="atScope()")}
    assert upper.id in above
    assert inner.id not in above
    mine = assignments.list_for_subscription(filter=f"principalId eq '{made.principal_id}'")
    assert {row.id for row in mine} == {inner.id, upper.id}
    mine = assignments.list_for_scope(_scope(azure), filter=f"assignedTo('{made.principal_id}')")
    assert {row.id for row in mine} == {inner.id, upper.id}


def test_role_assignments_survive_their_identity(azure: Azure, identities: Any, assignments: Any) -> None:
    made = _identity(azure)
    left = _grant(azure, made.principal_id)
    identities.delete(GROUP, "one")
    assert assignments.get(_scope(azure), left.name).principal_id == made.principal_id
    assert any(left.id in line for line in azure.state())
    assignments.delete(_scope(azure), left.name)
    assert assignments.delete(_scope(azure), left.name) is None
    with refused("RoleAssignmentNotFound", status=404):
        assignments.get(_scope(azure), left.name)


def test_deleting_a_group_deletes_its_role_assignments(azure: Azure) -> None:
    made = _identity(azure)
    _grant(azure, made.principal_id)
    azure.done(azure.client("resource").resource_groups.begin_delete, GROUP)
    assert azure.state() == []


def test_a_federated_credential_is_unique_per_identity(azure: Azure) -> None:
    _identity(azure)
    _credential(azure)
    with refused("ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity", status=409):
        _credential(azure, "second", "system:serviceaccount:a:c")
    with refused("ConcurrentFederatedIdentityCredentialsWritesForSingleManagedIdentity", status=409):
        azure.client("msi").federated_identity_credentials.delete(GROUP, "one", "pod")
    azure.advance(2)
    with refused("Conflict", "Issuer and subject combination already exists", status=409):
        _credential(azure, "second")
    azure.advance(2)
    _credential(azure)  # the same again


def test_a_new_federated_credential_counts_with_a_delay(azure: Azure) -> None:
    made = _identity(azure)
    trusted = _credential(azure)
    claims = {"iss": trusted.issuer, "sub": trusted.subject, "aud": trusted.audiences}
    token = f"e30.{base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip('=')}.unsigned"

    def refusal() -> str:
        words = (azure.env["AZURE_TENANT_ID"], made.client_id, lambda: token)
        options: dict[str, Any] = {
            "authority": azure.env["AZURE_AUTHORITY_HOST"],
            "connection_verify": azure.env["AZURE_CA_BUNDLE"],
            "disable_instance_discovery": True,
        }
        with (
            ClientAssertionCredential(*words, **options) as credential,
            pytest.raises(ClientAuthenticationError) as caught,
        ):
            credential.get_token("https://storage.azure.com/.default")
        return str(caught.value)

    assert "AADSTS700211" in refusal()  # no credential matches yet
    azure.advance(15)
    assert "AADSTS700027" in refusal()  # it matches: the signature is looked at


def test_an_identity_has_at_most_twenty_federated_credentials(azure: Azure) -> None:
    _identity(azure)
    azure.control(durations={"federation-write": 0})
    for at in range(20):
        _credential(azure, f"pod{at}", f"system:serviceaccount:a:{at}")
    with refused("BadRequest", "20", status=400):
        _credential(azure, "more", "system:serviceaccount:a:more")


def test_roles_are_found_by_name(azure: Azure) -> None:
    definitions = azure.client("authorization").role_definitions
    scope = f"/subscriptions/{azure.subscription}"
    (found,) = definitions.list(scope, filter="roleName eq 'Network Contributor'")
    assert found.name == _NETWORK_CONTRIBUTOR
    assert "Microsoft.Network/*" in found.permissions[0].actions
    assert definitions.get(scope, _ACR_PULL).role_name == "AcrPull"


def _deployer(azure: Azure) -> Any:
    """Another client's credential, with permissions checked from now on."""
    azure.control(clients={_OTHER: {"secret": "other", "object_id": _OTHER}}, enforce_iam=True)
    return azure.credential(client_id=_OTHER, client_secret="other")  # noqa: S106 - of the stand-in


def test_a_role_assignment_takes_effect_with_a_delay(azure: Azure) -> None:
    groups = azure.client("resource", credential=_deployer(azure)).resource_groups
    with refused("AuthorizationFailed", "Microsoft.Resources/subscriptions/resourceGroups/read", status=403):
        groups.get(GROUP)
    _grant(azure, _OTHER, _CONTRIBUTOR)
    with refused("AuthorizationFailed", status=403):
        groups.get(GROUP)
    azure.advance(60)
    assert groups.get(GROUP).name == GROUP


def test_a_conditional_grant_permission_is_limited_to_its_roles(azure: Azure) -> None:
    made = _identity(azure)
    clause = (
        "(!(ActionMatches{{'Microsoft.Authorization/roleAssignments/{action}'}}) OR "
        "@{source}[Microsoft.Authorization/roleAssignments:RoleDefinitionId] ForAnyOfAnyValues:GuidEquals "
        f"{{{{{_NETWORK_CONTRIBUTOR}}}}})"
    )
    condition = " AND ".join(
        clause.format(action=action, source=source)
        for action, source in (("write", "Request"), ("delete", "Resource"))
    )
    credential = _deployer(azure)
    _grant(azure, _OTHER, _ACCESS_ADMINISTRATOR, condition=condition, conditionVersion="2.0")
    azure.advance(60)
    theirs = azure.client("authorization", credential=credential).role_assignments
    prefix = f"/subscriptions/{azure.subscription}/providers/Microsoft.Authorization/roleDefinitions/"
    body = {
        "properties": {
            "roleDefinitionId": prefix + _CONTRIBUTOR,
            "principalId": made.principal_id,
            "principalType": "ServicePrincipal",
        }
    }
    with refused("AuthorizationFailed", "ABAC condition", status=403):
        theirs.create(_scope(azure), str(UUID(int=1)), body)
    body["properties"]["roleDefinitionId"] = prefix + _NETWORK_CONTRIBUTOR
    theirs.create(_scope(azure), str(UUID(int=1)), body)
    theirs.delete(_scope(azure), str(UUID(int=1)))
