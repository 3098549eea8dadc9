"""No identity of a cluster reads, changes or deletes what others have in the subscription."""

from __future__ import annotations

from tests.contract.azure.support_identities import Attempt, Estate

# Operations that return a secret or data, by the type that has them (permissions/*.md of azure-docs).
SECRETS = {
    "microsoft.compute/disks": ("beginGetAccess",),
    "microsoft.compute/snapshots": ("beginGetAccess",),
    "microsoft.compute/virtualmachines": ("runCommand", "retrieveBootDiagnosticsData"),
    "microsoft.containerregistry/registries": ("listCredentials", "regenerateCredential"),
    "microsoft.containerservice/managedclusters": (
        "listClusterAdminCredential",
        "listClusterUserCredential",
        "runCommand",
    ),
    "microsoft.logic/workflows": ("listCallbackUrl",),
    "microsoft.operationalinsights/workspaces": ("sharedKeys",),
    "microsoft.storage/storageaccounts": ("listKeys", "listAccountSas", "regenerateKey"),
}
_REFUSED = (403, "AuthorizationPermissionMismatch")  # not by the account's network rules
# The deployer's role in the subscription shows these; README.md of infra/azure says so.
SHOWN = ("/resourcegroups/", "/roleassignments/")


def type_of(id_: str) -> str:
    """The type in an id, in lower case."""
    parts = id_.lower().rpartition("/providers/")[2].split("/")
    return "/".join([parts[0], *parts[1::2]])


def attempts(id_: str) -> list[Attempt]:
    """To read, to change and to delete a resource, and to get its secrets."""
    made = [Attempt(action=method, method=method, path=id_) for method in ("GET", "PUT", "PATCH", "DELETE")]
    made += [
        Attempt(action=name, method="POST", path=f"{id_}/{name}") for name in SECRETS.get(type_of(id_), ())
    ]
    return made


def touched(estate: Estate, names: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """What these identities may do to resources of others: who, what, which."""
    return [
        (who, each.action, id_)
        for who in names
        for id_ in estate.bystanders()
        for each in attempts(id_)
        if estate.identities[who].may(each)
    ]


def test_nothing_of_others_is_read_changed_or_deleted_by_an_identity(estate: Estate) -> None:
    there = estate.bystanders()
    assert len({type_of(id_) for id_ in there}) > 25
    found = touched(estate, tuple(estate.identities))
    shown = [
        each
        for each in found
        if each[:2] == ("deployer", "GET")
        and (SHOWN[1] in each[2].lower() or each[2].lower().rpartition(SHOWN[0])[2].count("/") == 0)
    ]
    assert [each for each in found if each not in shown] == []
    assert estate.bystanders() == there
    print(f"0 of {len(there)} resources of others can be touched by {len(estate.identities)} identities")


def test_blobs_of_others_are_not_read_written_or_deleted(estate: Estate) -> None:
    ours, theirs = estate.accounts["cloudrec-t"], estate.accounts["cloudrec-u"]
    for who, identity in estate.identities.items():
        for method in ("GET", "PUT", "DELETE"):
            assert identity.blob(method, theirs, "data/model") == _REFUSED, (who, method)
    for who in ("deployer", "pod"):
        assert estate.identities[who].blob("PUT", ours, "data/model") == (201, ""), who
    for who in ("guard", "end", "cluster"):
        assert estate.identities[who].blob("GET", ours, "data/model") == _REFUSED, who


def test_the_check_finds_what_a_wider_scope_of_the_role_opens(estate: Estate) -> None:
    for action in (
        "Microsoft.Storage/storageAccounts/delete",
        "Microsoft.Compute/disks/beginGetAccess/action",
    ):
        estate.deployer.grant(action)
        found = {(each[1], type_of(each[2])) for each in touched(estate, ("deployer",))}
        kind, verb = action.lower().removesuffix("/action").rsplit("/", 1)
        assert (verb, kind) in {(what.lower(), of) for what, of in found}
