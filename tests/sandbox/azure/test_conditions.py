"""A role assignment's condition limits what its role allows on blobs; Azure's refusals of conditions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.storage.blob import ContainerClient

from cloudrec_sandbox.azure.services.authorization.abac import CONTAINERS, Attempt, named
from cloudrec_sandbox.azure.services.authorization.abac_syntax import AbsentError, ConditionError, parse
from tests.sandbox.azure.support import Azure, headers_of, refused
from tests.sandbox.azure.support_blobs import CONTAINER, CONTRIBUTOR, READER, blobs, grant, make_account

_READ, _WRITE, _DELETE = (f"{CONTAINERS}/blobs/{verb}" for verb in ("read", "write", "delete"))
_ADD, _MOVE = f"{CONTAINERS}/blobs/add/action", f"{CONTAINERS}/blobs/move/action"
_PATH, _PREFIX = f"@Resource[{CONTAINERS}/blobs:path]", f"@Request[{CONTAINERS}/blobs:prefix]"
_NAME = f"@Resource[{CONTAINERS}:name]"
# Blobs below turns/ are read, listed, made and replaced; names are listed below runs/RUN/pods/; no more.
TURNS = (
    f"((!(ActionMatches{{'{_READ}'}} AND NOT SubOperationMatches{{'Blob.List'}})"
    f" AND !(ActionMatches{{'{_WRITE}'}}) AND !(ActionMatches{{'{_ADD}'}}))"
    f" OR ({_PATH} StringStartsWith 'turns/'))"
    f" AND (!(ActionMatches{{'{_READ}'}} AND SubOperationMatches{{'Blob.List'}})"
    f" OR ({_PREFIX} StringStartsWith 'turns/' OR {_PREFIX} StringLike 'runs/*/pods/*'))"
    # No container's name is that short: with this nothing is deleted or moved.
    f" AND ((!(ActionMatches{{'{_DELETE}'}}) AND !(ActionMatches{{'{_MOVE}'}}))"
    f" OR ({_NAME} StringEquals '-'))"
)
_VERSION = "2.0"
_REFUSED = (403, "AuthorizationPermissionMismatch")
_OTHER = "12345678-0000-4000-8000-000000000001"
_INVALID = "InvalidRoleAssignmentCondition"


@pytest.fixture(autouse=True)
def _group(azure: Azure) -> None:
    azure.group()


def _limited(azure: Azure, condition: str, role: str = CONTRIBUTOR) -> ContainerClient:
    """The container, for a principal whose only role has a condition."""
    azure.control(clients={"limited": {"secret": "s", "object_id": _OTHER}})
    grant(azure, role, principal=_OTHER, condition=condition, conditionVersion=_VERSION)
    return blobs(azure, credential=azure.credential(client_id="limited", client_secret="s"))  # noqa: S106


def _code_of(act: Callable[..., Any], *words: Any, **options: Any) -> tuple[int | None, str]:
    """The status and the code with which a call is refused."""
    with pytest.raises(HttpResponseError) as caught:
        act(*words, **options)
    return caught.value.status_code, headers_of(caught.value).get("x-ms-error-code", "")


@pytest.fixture(params=[True, False], ids=["folders", "flat"])
def turns(azure: Azure, request: pytest.FixtureRequest) -> ContainerClient:
    """A container with a blob inside and outside of what the condition allows, for the limited principal."""
    make_account(azure, has_folders=request.param)
    grant(azure)
    whole = blobs(azure)
    for name in ("turns/r/1", "runs/r/pods/a", "runs/r/log", "secret"):
        whole.upload_blob(name, b"1")
    return _limited(azure, TURNS)


def test_blobs_are_read_below_the_path_alone(turns: ContainerClient) -> None:
    assert turns.download_blob("turns/r/1").readall() == b"1"
    assert turns.get_blob_client("turns/r/1").get_blob_properties().size == 1
    for name in ("secret", "runs/r/pods/a", "turnsx", "turns"):
        blob = turns.get_blob_client(name)
        assert _code_of(blob.download_blob) == _REFUSED
        assert _code_of(blob.get_block_list) == _REFUSED
        assert _code_of(blob.get_blob_properties)[0] == 403
    assert _code_of(turns.download_blob, "turns/none") == (404, "BlobNotFound")


def test_lists_need_a_prefix_that_the_condition_allows(turns: ContainerClient) -> None:
    for allowed in ("turns/", "turns/r", "runs/r/pods/", "runs/r/pods/a"):
        assert list(turns.list_blobs(allowed))
    without: tuple[str | None, ...] = (None, "")
    for prefix in (*without, "turns", "runs/", "runs/r/", "runs/r/pods", "secret"):
        assert _code_of(next, turns.list_blobs(prefix)) == _REFUSED
    assert [each.name for each in turns.walk_blobs("turns/")] == ["turns/r/"]


def test_blobs_are_made_and_replaced_below_the_path_alone(turns: ContainerClient) -> None:
    turns.upload_blob("turns/r/2", b"1")
    turns.upload_blob("turns/r/2", b"22", overwrite=True)
    turns.upload_blob("turns/r/3", bytes(3000))  # in blocks
    turns.get_blob_client("turns/r/3").set_blob_metadata({"a": "b"})
    for name in ("secret", "new", "runs/r/pods/b"):
        assert _code_of(turns.upload_blob, name, b"1", overwrite=True) == _REFUSED
        assert _code_of(turns.upload_blob, name, bytes(3000)) == _REFUSED
        change = turns.get_blob_client(name).set_blob_metadata
        assert _code_of(change, {"a": "b"}) == _REFUSED


def test_nothing_is_deleted_and_the_containers_properties_stay_readable(turns: ContainerClient) -> None:
    assert _code_of(turns.delete_blob, "turns/r/1") == _REFUSED
    assert _code_of(turns.delete_blob, "secret") == _REFUSED
    assert turns.get_container_properties().name == CONTAINER
    assert turns.exists()


def test_a_condition_on_one_of_two_actions_leaves_the_other_open(azure: Azure) -> None:
    """A blob can be made by the action to write and by the one to add; replaced by the first alone."""
    make_account(azure)
    grant(azure)
    blobs(azure).upload_blob("there", b"1")
    limited = _limited(azure, f"!(ActionMatches{{'{_WRITE}'}}) OR {_PATH} StringStartsWith 'turns/'")
    limited.upload_blob("new", b"1")
    assert _code_of(limited.upload_blob, "there", b"1", overwrite=True) == _REFUSED
    assert _code_of(limited.upload_blob, "staged", bytes(3000)) == _REFUSED


def test_a_second_assignment_without_a_condition_allows_what_the_first_does_not(azure: Azure) -> None:
    make_account(azure)
    limited = _limited(azure, f"!(ActionMatches{{'{_READ}'}}) OR {_NAME} StringEquals 'other'")
    assert _code_of(next, limited.list_blobs("a")) == _REFUSED
    grant(azure, READER, principal=_OTHER)
    assert list(limited.list_blobs("a")) == []


def test_an_assignment_is_returned_with_its_condition(azure: Azure) -> None:
    make_account(azure)
    grant(azure, condition=TURNS, conditionVersion=_VERSION)
    roles = azure.client("authorization").role_assignments
    found = [each for each in roles.list_for_subscription() if each.condition]
    assert [(each.condition, each.condition_version) for each in found] == [(TURNS, _VERSION)]


@pytest.mark.parametrize(
    ("condition", "version"),
    [
        (TURNS, "1.0"),
        (f"({TURNS}", _VERSION),
        (f"{_PATH} StringStartsWith turns/", _VERSION),
        (f"{_PATH} StringEquals 'a' AND {_PATH} StringEquals 'b' OR {_PATH} StringEquals 'c'", _VERSION),
        (f"{_PATH} StringEquals '{'a' * 8192}'", _VERSION),
        ("!(ActionMatches{'Microsoft.Authorization/roleAssignments/write'})", _VERSION),
        (f"!(ActionMatches{{'{CONTAINERS}/blobs/tags/read'}})", _VERSION),
    ],
    ids=["version", "parenthesis", "quotes", "mixture", "length", "foreign-action", "action-not-of-the-role"],
)
def test_an_invalid_condition_is_refused(azure: Azure, condition: str, version: str) -> None:
    make_account(azure)
    with refused(_INVALID, "The given role assignment condition is invalid.", status=400):
        grant(azure, condition=condition, conditionVersion=version)


def test_a_role_without_an_action_that_supports_conditions_cannot_have_one(azure: Azure) -> None:
    make_account(azure)
    with refused(_INVALID, status=400):
        grant(azure, "acdd72a7-3385-48ef-bd42-f606fba81ae7", condition=f"{_NAME} StringEquals 'a'")  # Reader


def test_what_the_stand_in_cannot_evaluate_is_named(azure: Azure) -> None:
    make_account(azure)
    condition = f"@Resource[{CONTAINERS}/blobs/tags:Project<$key_case_sensitive$>] StringEquals 'a'"
    with refused("NotImplemented", "tags:Project", status=501):
        grant(azure, condition=condition, conditionVersion=_VERSION)


def test_the_version_of_a_condition_defaults_to_the_only_one(azure: Azure) -> None:
    make_account(azure)
    grant(azure, condition=TURNS)
    roles = azure.client("authorization").role_assignments
    assert _VERSION in [each.condition_version for each in roles.list_for_subscription()]


def test_a_condition_is_checked_at_a_change_of_the_assignment_too(azure: Azure) -> None:
    make_account(azure)
    grant(azure)
    with refused(_INVALID, status=400):
        grant(azure, condition="ActionMatches", conditionVersion=_VERSION)
    grant(azure, condition=f"{_NAME} StringEquals 'other'", conditionVersion=_VERSION)
    assert _code_of(blobs(azure).upload_blob, "a", b"1") == _REFUSED


def test_the_condition_of_the_projects_own_deployer_parses() -> None:
    text = Path("infra/azure/grants.condition").read_text()
    for action, source in (("write", "Request"), ("delete", "Resource")):
        attribute = f"@{source}[Microsoft.Authorization/roleAssignments:RoleDefinitionId]"
        for role, holds in ((CONTRIBUTOR, True), ("8e3af657-a8ff-443c-a75c-2fe8c4bcb635", False)):
            attempt = Attempt(
                action=f"Microsoft.Authorization/roleAssignments/{action}",
                attributes=named({attribute: role}),
            )
            assert parse(text).holds(attempt) is holds


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        (f"{_PATH} StringEquals 'runs/A'", True),
        (f"{_PATH.upper()} StringEquals 'runs/A'", True),
        (f"{_PATH} StringEquals 'runs/a'", False),
        (f"{_PATH} StringEqualsIgnoreCase 'RUNS/a'", True),
        (f"{_PATH} StringNotEquals 'runs/a'", True),
        (f"{_PATH} StringStartsWith 'runs/'", True),
        (f"{_PATH} StringNotStartsWith 'runs/'", False),
        (f"{_PATH} StringLike 'r*/?'", True),
        (f"{_PATH} StringLike 'runs'", False),
        (rf"{_PATH} StringLike 'runs/\?'", False),
        (f"{_PATH} StringNotLike 'r*'", False),
        (f"{_PATH} StringLikeIgnoreCase 'R*a'", True),
        (f"{_PATH} ForAnyOfAnyValues:StringEquals {{'b', 'runs/A'}}", True),
        (f"{_PATH} ForAnyOfAnyValues:StringLike {{'b*', 'c*'}}", False),
        (f"{_PATH} ForAllOfAllValues:StringNotLike {{'b*', 'r*'}}", False),
        (f"{_PATH} ForAnyOfAllValues:StringNotEquals {{'b', 'c'}}", True),
        (f"NOT {_PATH} StringEquals 'b' && !({_PATH} StringEquals 'c')", True),
        (f"{_PATH} StringEquals 'b' || ({_PATH} StringEquals 'c' OR {_PATH} StringLike '*')", True),
        (f"Exists {_PATH} AND NOT Exists {_PREFIX}", True),
        (f"{_PREFIX} StringStartsWith 'a' OR {_PATH} StringLike '*'", True),
        ("@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled] BoolEquals true", True),
        (f"ActionMatches{{'{CONTAINERS}/blobs/*'}} AND SubOperationMatches{{'Blob.List'}}", False),
        (f"ActionMatches{{'{_READ.upper()}'}}", True),
        # A comparison of what the request has not is not made true by turning it round.
        (f"{_PREFIX} StringLike '*'", None),
        (f"{_PREFIX} StringNotEquals 'a'", None),
        (f"NOT ({_PREFIX} StringEquals 'a')", None),
    ],
)
def test_a_comparison_holds_as_azure_describes_it(condition: str, holds: bool | None) -> None:  # noqa: FBT001
    attributes = {_PATH: "runs/A", "@Resource[Microsoft.Storage/storageAccounts:isHnsEnabled]": "true"}
    assert parse(condition).holds(Attempt(action=_READ, attributes=named(attributes))) is holds


@pytest.mark.parametrize(
    "condition",
    [
        "",
        "()",
        "'a'",
        f"{_PATH}",
        f"{_PATH} StringEquals",
        f"{_PATH} StringEquals 'a' 'b'",
        f"{_PATH} StringEquals {{'a', 'b'}}",
        f"{_PATH} ForAnyOfAnyValues:StringEquals 'a'",
        f"{_PATH} ForAnyOfAnyValues:StringStartsWith {{'a'}}",
        f"{_PATH} ForAnyOfAnyValues:StringEquals {{'a',}}",
        f"{_PATH} StringContains 'a'",
        f"{_PATH} stringEquals 'a'",
        f"{_PATH} GuidEquals 00000000-0000-0000-0000-000000000000",
        f"{_PATH} StringEquals 'a' and {_PATH} StringEquals 'b'",
        f"{_PATH} StringEquals 'a' AND",
        f"@Resource[{CONTAINERS}/blobs:prefix] StringEquals 'a'",
        "ActionMatches('a')",
        "ActionMatches{'a', 'b'}",
        "SubOperationMatches{'Blob.Nothing'}",
        "Exists 'a'",
        f"{_PATH} StringEquals 'it's'",
        "(" * 4000,
        "!" * 4000,
    ],
)
def test_a_malformed_condition_does_not_parse(condition: str) -> None:
    with pytest.raises(ConditionError):
        parse(condition)


@pytest.mark.parametrize(
    "condition",
    [
        "@Principal[Microsoft.Directory/CustomSecurityAttributes/Id:A_b] StringEquals 'a'",
        "@Environment[UtcNow] DateTimeGreaterThan '2023-03-29T22:03:00.0Z'",
        f"@Request[{CONTAINERS}/blobs:versionId] DateTimeEquals '2022-06-01T23:38:32.8883645Z'",
    ],
)
def test_what_the_stand_in_has_not_differs_from_what_is_wrong(condition: str) -> None:
    with pytest.raises(AbsentError):
        parse(condition)
