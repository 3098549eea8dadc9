"""Import jobs of Managed Lustre: what the service needs, and what it refuses."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from cloudrec_sandbox.azure.services.authorization.principals import STORAGE_CACHE
from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_network import NETWORK, SUBNET, make_network, put_subnet

ACCOUNT = "cr0123456789"
_ROLES = "/providers/Microsoft.Authorization/roleDefinitions"
_KEYS, _DATA = "17d1049b-9a84-46fb-8f53-869881c3d3ab", "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
_CONTAINERS = "Microsoft.Storage/storageAccounts/blobServices/containers"


@pytest.fixture
def systems(azure: Azure) -> Any:
    return azure.client("storagecache").aml_filesystems


@pytest.fixture
def jobs(azure: Azure) -> Any:
    return azure.client("storagecache").import_jobs


def account(azure: Azure, name: str = ACCOUNT, *, keys: bool = True) -> None:
    """An account with the containers data and logs."""
    storage = azure.client("storage")
    body = {
        "location": LOCATION,
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS"},
        "properties": {"isHnsEnabled": True, "allowSharedKeyAccess": keys},
    }
    azure.done(storage.storage_accounts.begin_create, GROUP, name, body, seconds=60)
    for container in ("data", "logs"):
        storage.blob_containers.create(GROUP, name, container, {})


def allow(azure: Azure, *roles: str) -> None:
    """Give the service roles on the account, and let them take effect."""
    scope = azure.id("Microsoft.Storage/storageAccounts", ACCOUNT)
    for role in roles:
        properties = {
            "roleDefinitionId": f"/subscriptions/{azure.subscription}{_ROLES}/{role}",
            "principalId": STORAGE_CACHE,
            "principalType": "ServicePrincipal",
        }
        client = azure.client("authorization").role_assignments
        client.create(scope, str(uuid4()), {"properties": properties})
    azure.advance(600)


def body(azure: Azure, *, data: str = "data", logs: str = "logs", of: str = ACCOUNT) -> dict[str, Any]:
    return {
        "location": LOCATION,
        "sku": {"name": "AMLFS-Durable-Premium-250"},
        "zones": ["1"],
        "properties": {
            "storageCapacityTiB": 8,
            "filesystemSubnet": azure.id("Microsoft.Network/virtualNetworks/subnets", NETWORK, SUBNET),
            "maintenanceWindow": {"dayOfWeek": "Friday", "timeOfDayUTC": "22:00"},
            "hsm": {
                "settings": {
                    "container": azure.id(_CONTAINERS, ACCOUNT, "default", data),
                    "loggingContainer": azure.id(_CONTAINERS, of, "default", logs),
                }
            },
        },
    }


def job(*prefixes: str, location: str = LOCATION, **more: Any) -> dict[str, Any]:
    wanted = {"importPrefixes": list(prefixes)} if prefixes else {}
    return {"location": location, "properties": {**wanted, **more}}


def state(jobs: Any, name: str) -> tuple[str, str]:
    status = jobs.get(GROUP, "fs", name).properties.status
    return status.state, status.status_message or ""


@pytest.fixture(autouse=True)
def _network(azure: Azure) -> None:
    azure.group()
    make_network(azure)
    put_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])


def make(azure: Azure, systems: Any) -> None:
    """A file system that is filled, and whose first import is done."""
    account(azure)
    allow(azure, _KEYS, _DATA)
    azure.done(systems.begin_create_or_update, GROUP, "fs", body(azure))
    azure.advance(600)


def test_a_file_system_without_access_to_its_container_is_refused(azure: Azure, systems: Any) -> None:
    account(azure)
    account(azure, "crother")
    closed = ("InvalidParameter", "is not found or is inaccessible")
    with refused(*closed, status=400):
        systems.begin_create_or_update(GROUP, "fs", body(azure))
    allow(azure, _DATA)  # one of the two roles
    with refused(*closed):
        systems.begin_create_or_update(GROUP, "fs", body(azure))
    allow(azure, _KEYS)
    with refused(*closed):
        systems.begin_create_or_update(GROUP, "fs", body(azure, data="none"))
    with refused("InvalidParameter", "must differ"):
        systems.begin_create_or_update(GROUP, "fs", body(azure, logs="data"))
    with refused("InvalidParameter", "one storage account"):
        systems.begin_create_or_update(GROUP, "fs", body(azure, of="crother"))
    accounts = azure.client("storage").storage_accounts
    accounts.update(GROUP, ACCOUNT, {"properties": {"allowSharedKeyAccess": False}})
    with refused(*closed):
        systems.begin_create_or_update(GROUP, "fs", body(azure))
    accounts.update(GROUP, ACCOUNT, {"properties": {"allowSharedKeyAccess": True}})
    azure.done(systems.begin_create_or_update, GROUP, "fs", body(azure))


def test_one_job_runs_at_a_time_and_the_creation_has_one(azure: Azure, systems: Any, jobs: Any) -> None:
    account(azure)
    allow(azure, _KEYS, _DATA)
    azure.done(systems.begin_create_or_update, GROUP, "fs", body(azure), seconds=901)
    (first,) = jobs.list_by_aml_filesystem(GROUP, "fs")
    assert (first.properties.import_prefixes, first.properties.status.state) == (["/"], "InProgress")
    with refused("Conflict", "in progress", status=409):
        jobs.begin_create_or_update(GROUP, "fs", "one", job("/data"))
    azure.advance(300)
    assert state(jobs, first.name) == ("Completed", "")
    azure.done(jobs.begin_create_or_update, GROUP, "fs", "one", job("/data"), seconds=21)
    assert state(jobs, "one")[0] == "InProgress"
    azure.advance(300)
    assert state(jobs, "one") == ("Completed", "")
    assert azure.control()["lustre_imported"] == {"fs": ["/", "/data"]}
    azure.done(jobs.begin_delete, GROUP, "fs", "one", seconds=30)
    azure.done(systems.begin_delete, GROUP, "fs")
    assert not [each for each in azure.state() if "importjobs" in each.lower()]


def test_a_job_can_be_cancelled(azure: Azure, systems: Any, jobs: Any) -> None:
    make(azure, systems)
    azure.done(jobs.begin_create_or_update, GROUP, "fs", "one", job("/data"), seconds=21)
    azure.done(jobs.begin_update, GROUP, "fs", "one", {"properties": {"adminStatus": "Cancel"}}, seconds=21)
    azure.advance(600)
    assert state(jobs, "one")[0] == "Canceled"
    with refused("PropertyChangeNotAllowed", "importPrefixes"):
        jobs.begin_create_or_update(GROUP, "fs", "one", job("/other"))


@pytest.mark.parametrize(
    ("wish", "refusal"),
    [
        (job("/a", location="westus3"), ("InvalidParameter", "must be that of its file system, eastus")),
        (job("/a", conflictResolutionMode="Ask"), ("InvalidRequestContent", "conflictResolutionMode")),
    ],
)
def test_wrong_jobs_are_refused(
    azure: Azure, systems: Any, jobs: Any, wish: dict[str, Any], refusal: tuple[str, str]
) -> None:
    make(azure, systems)
    with refused(*refusal, status=400):
        jobs.begin_create_or_update(GROUP, "fs", "one", wish)


def test_names_file_systems_and_containers_must_be_there(azure: Azure, systems: Any, jobs: Any) -> None:
    with refused("ParentResourceNotFound", status=404):
        jobs.begin_create_or_update(GROUP, "none", "one", job("/a"))
    plain = body(azure)
    del plain["properties"]["hsm"]
    azure.done(systems.begin_create_or_update, GROUP, "fs", plain)
    with refused("InvalidParameter", "no hsm.settings"):
        jobs.begin_create_or_update(GROUP, "fs", "one", job("/a"))
    path = f"{azure.id('Microsoft.StorageCache/amlFilesystems', 'fs')}/importJobs/-one?api-version=2026-08-01"
    status, _, told = azure.raw("PUT", path, job("/a"))
    assert (status, told["error"]["code"]) == (400, "InvalidResourceName")


def test_jobs_fail_for_overlapping_prefixes_lost_roles_and_a_closed_account(
    azure: Azure, systems: Any, jobs: Any
) -> None:
    make(azure, systems)

    def run(name: str, *prefixes: str) -> tuple[str, str]:
        azure.done(jobs.begin_create_or_update, GROUP, "fs", name, job(*prefixes), seconds=30)
        azure.advance(300)
        return state(jobs, name)

    assert run("two", "/data", "/data2") == ("Failed", "The import prefixes /data and /data2 overlap.")
    accounts = azure.client("storage").storage_accounts
    closed = {"defaultAction": "Deny", "virtualNetworkRules": []}
    accounts.update(GROUP, ACCOUNT, {"properties": {"networkAcls": closed}})
    assert "AuthorizationFailure" in run("closed", "/data")[1]
    subnet = {"id": azure.id("Microsoft.Network/virtualNetworks/subnets", NETWORK, SUBNET)}
    accounts.update(
        GROUP, ACCOUNT, {"properties": {"networkAcls": {**closed, "virtualNetworkRules": [subnet]}}}
    )
    assert run("open", "/data") == ("Completed", "")
    client = azure.client("authorization").role_assignments
    for row in client.list_for_scope(azure.id("Microsoft.Storage/storageAccounts", ACCOUNT)):
        if row.principal_id == STORAGE_CACHE:
            client.delete_by_id(row.id)
    assert "no access" in run("lost", "/data")[1]
