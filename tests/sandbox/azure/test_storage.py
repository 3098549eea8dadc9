"""Storage accounts, containers, registries and Lustre refuse and delay as Azure does it."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_network import (
    NETWORK,
    SUBNET,
    finish,
    make_network,
    make_subnet,
    put_subnet,
)

_ACCOUNT = "cr0123456789"
_SUBNETS = "Microsoft.Network/virtualNetworks/subnets"


@pytest.fixture(autouse=True)
def _group(azure: Azure) -> None:
    azure.group()


@pytest.fixture
def accounts(azure: Azure) -> Any:
    return azure.client("storage").storage_accounts


@pytest.fixture
def containers(azure: Azure) -> Any:
    return azure.client("storage").blob_containers


@pytest.fixture
def systems(azure: Azure) -> Any:
    return azure.client("storagecache").aml_filesystems


def _account(**properties: Any) -> dict[str, Any]:
    return {
        "location": LOCATION,
        "kind": "StorageV2",
        "sku": {"name": "Standard_LRS"},
        "properties": {"isHnsEnabled": True, **properties},
    }


def _make_account(azure: Azure, **properties: Any) -> Any:
    begin = azure.client("storage").storage_accounts.begin_create
    return azure.done(begin, GROUP, _ACCOUNT, _account(**properties), seconds=60)


def test_an_account_is_visible_at_the_end_of_its_operation(azure: Azure, accounts: Any) -> None:
    poller = azure.begin(accounts.begin_create, GROUP, _ACCOUNT, _account())
    assert not poller.done()
    with refused("StorageAccountOperationInProgress", status=409):
        accounts.begin_create(GROUP, _ACCOUNT, _account())
    with refused("StorageAccountIsNotProvisioned", status=409):
        azure.client("storage").blob_containers.create(GROUP, _ACCOUNT, "data", {})
    made = finish(azure, poller)
    assert (made.name, made.properties.provisioning_state) == (_ACCOUNT, "Succeeded")
    assert made.properties.primary_endpoints.dfs == f"https://{_ACCOUNT}.dfs.core.windows.net/"


def test_the_name_of_an_account_is_globally_unique(azure: Azure, accounts: Any) -> None:
    azure.control(foreign_names={"storage": ["crtaken"]})
    with refused("StorageAccountAlreadyTaken", "crtaken", status=409):
        accounts.begin_create(GROUP, "crtaken", _account())
    with refused("ResourceNotFound", status=404):
        accounts.get_properties(GROUP, "crtaken")
    told = accounts.check_name_availability({"name": "crtaken", "type": "Microsoft.Storage/storageAccounts"})
    assert (told.name_available, told.reason) == (False, "AlreadyExists")
    with refused("AccountNameInvalid", "3 and 24", status=400):
        accounts.begin_create(GROUP, "Cr-Upper", _account())
    azure.group("other")
    _make_account(azure)
    with refused("StorageAccountInAnotherResourceGroup", status=409):
        accounts.begin_create("other", _ACCOUNT, _account())


def test_immutable_properties_are_refused_in_updates(azure: Azure, accounts: Any) -> None:
    _make_account(azure)
    with refused("AccountPropertyCannotBeUpdated", "isHnsEnabled", status=409):
        accounts.begin_create(GROUP, _ACCOUNT, _account(isHnsEnabled=False))
    changed = accounts.update(GROUP, _ACCOUNT, {"properties": {"allowSharedKeyAccess": False}})
    assert changed.properties.allow_shared_key_access is False
    assert changed.properties.is_hns_enabled is True


def test_an_account_admits_only_subnets_with_a_service_endpoint(azure: Azure, accounts: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    rule = {"id": azure.id(_SUBNETS, NETWORK, SUBNET)}
    body = _account(networkAcls={"defaultAction": "Deny", "virtualNetworkRules": [rule]})
    words = ("SubnetsHaveNoServiceEndpointsConfigured", "Microsoft.Storage")
    with refused("NetworkAclsValidationFailure", *words, status=400):
        accounts.begin_create(GROUP, _ACCOUNT, body)
    endpoint = put_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])
    with refused("NetworkAclsValidationFailure", "SubnetsNotProvisioned", "Updating", status=400):
        accounts.begin_create(GROUP, _ACCOUNT, body)
    finish(azure, endpoint)
    made = azure.done(accounts.begin_create, GROUP, _ACCOUNT, body, seconds=60)
    assert made.properties.network_rule_set.virtual_network_rules[0].state == "Succeeded"
    azure.done(azure.client("network").subnets.begin_delete, GROUP, NETWORK, SUBNET, seconds=60)
    found = accounts.get_properties(GROUP, _ACCOUNT)
    assert found.properties.network_rule_set.virtual_network_rules[0].state == "NetworkSourceDeleted"
    with refused("NetworkAclsValidationFailure", SUBNET, status=400):
        accounts.begin_create(GROUP, _ACCOUNT, body)


def test_an_account_in_another_region_admits_only_subnets_with_the_endpoint_to_all_regions(
    azure: Azure, accounts: Any
) -> None:
    make_network(azure)
    found = make_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])
    assert found.service_endpoints[0].locations == ["eastus", "westus"]
    rule = {"id": azure.id(_SUBNETS, NETWORK, SUBNET)}
    acls = {"defaultAction": "Deny", "virtualNetworkRules": [rule]}
    body = {**_account(networkAcls=acls), "location": "westeurope"}
    with refused("NetworkAclsValidationFailure", "Microsoft.Storage.Global", "westeurope", status=400):
        accounts.begin_create(GROUP, _ACCOUNT, body)
    found = make_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage.Global"}])
    assert found.service_endpoints[0].locations == ["*"]
    made = azure.done(accounts.begin_create, GROUP, _ACCOUNT, body, seconds=60)
    assert made.properties.network_rule_set.virtual_network_rules[0].state == "Succeeded"
    make_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])
    with refused("NetworkAclsValidationFailure", "westeurope", status=400):
        accounts.update(GROUP, _ACCOUNT, {"properties": {"networkAcls": acls}})


def test_an_account_in_the_paired_region_admits_a_subnet(azure: Azure, accounts: Any) -> None:
    make_network(azure)
    make_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])
    rule = {"id": azure.id(_SUBNETS, NETWORK, SUBNET)}
    body = _account(networkAcls={"defaultAction": "Deny", "virtualNetworkRules": [rule]})
    made = azure.done(accounts.begin_create, GROUP, _ACCOUNT, {**body, "location": "westus"}, seconds=60)
    assert made.location == "westus"


def test_an_account_admits_only_public_addresses(azure: Azure, accounts: Any) -> None:
    for value in ("10.0.0.1", "8.8.8.0/31", "eight"):
        body = _account(networkAcls={"defaultAction": "Deny", "ipRules": [{"value": value}]})
        with refused("InvalidValuesForRequestParameters", status=400):
            accounts.begin_create(GROUP, _ACCOUNT, body)
    _make_account(azure, networkAcls={"defaultAction": "Deny", "ipRules": [{"value": "8.8.8.8"}]})


def test_the_name_of_a_deleted_container_is_in_use_for_some_time(azure: Azure, containers: Any) -> None:
    _make_account(azure)
    containers.create(GROUP, _ACCOUNT, "data", {})
    containers.create(GROUP, _ACCOUNT, "data", {})
    containers.delete(GROUP, _ACCOUNT, "data")
    with refused("ContainerNotFound", status=404):
        containers.get(GROUP, _ACCOUNT, "data")
    with refused("ContainerOperationFailure", "being deleted", status=409):
        containers.create(GROUP, _ACCOUNT, "data", {})
    azure.advance(30)
    containers.create(GROUP, _ACCOUNT, "data", {})
    with refused("ContainerOperationFailure", "invalid characters", status=400):
        containers.create(GROUP, _ACCOUNT, "No--Name", {})


def test_containers_cannot_be_public_if_the_account_forbids_it(azure: Azure, containers: Any) -> None:
    _make_account(azure, allowBlobPublicAccess=False)
    with refused("PublicAccessNotPermitted", status=409):
        containers.create(GROUP, _ACCOUNT, "data", {"properties": {"publicAccess": "Blob"}})


def test_a_deleted_container_is_retained_with_soft_delete(azure: Azure, containers: Any) -> None:
    _make_account(azure)
    policy = {"properties": {"containerDeleteRetentionPolicy": {"enabled": True, "days": 7}}}
    azure.client("storage").blob_services.set_service_properties(GROUP, _ACCOUNT, policy)
    containers.create(GROUP, _ACCOUNT, "data", {})
    containers.delete(GROUP, _ACCOUNT, "data")
    assert list(containers.list(GROUP, _ACCOUNT)) == []
    (kept,) = containers.list(GROUP, _ACCOUNT, include="deleted")
    assert (kept.name, kept.properties.deleted, kept.properties.remaining_retention_days) == ("data", True, 6)
    azure.advance(8 * 86400)
    assert list(containers.list(GROUP, _ACCOUNT, include="deleted")) == []


def test_the_name_of_a_registry_is_globally_unique(azure: Azure) -> None:
    registries = azure.client("containerregistry").registries
    body = {"location": LOCATION, "sku": {"name": "Standard"}}
    azure.control(foreign_names={"registries": ["crtaken"]})
    with refused("AlreadyInUse", "crtaken.azurecr.io", status=409):
        registries.begin_create(GROUP, "crTaken", body)
    question = {"name": "crtaken", "type": "Microsoft.ContainerRegistry/registries"}
    assert registries.check_name_availability(question).name_available is False
    for name in ("cr-1", "four"):
        with refused("InvalidResourceName", "5 and 50", status=400):
            registries.begin_create(GROUP, name, body)
    made = azure.done(registries.begin_create, GROUP, "crmine", body, seconds=60)
    assert made.properties.login_server == "crmine.azurecr.io"
    with refused("InvalidRequest", "Premium", status=400):
        registries.begin_update(GROUP, "crmine", {"properties": {"publicNetworkAccess": "Disabled"}})
    azure.done(registries.begin_delete, GROUP, "crmine", seconds=60)


def _lustre(azure: Azure, **changes: Any) -> dict[str, Any]:
    properties = {
        "storageCapacityTiB": changes.pop("tib", 16),
        "filesystemSubnet": azure.id(_SUBNETS, NETWORK, SUBNET),
        "maintenanceWindow": {"dayOfWeek": "Friday", "timeOfDayUTC": "22:00"},
        **changes.pop("properties", {}),
    }
    return {
        "location": LOCATION,
        "sku": {"name": changes.pop("sku", "AMLFS-Durable-Premium-125")},
        "zones": ["1"],
        "properties": properties,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"tib": 20}, "multiple of 16"),
        ({"sku": "AMLFS-Durable-Premium-500", "tib": 6}, "multiple of 4"),
        ({"sku": "AMLFS-Durable-Premium-40", "tib": 16}, "multiple of 48"),
        ({"sku": "AMLFS-Fast"}, "SKU"),
        ({"zones": []}, "exactly"),
        ({"zones": ["1", "2"]}, "exactly"),
        ({"properties": {"maintenanceWindow": {"dayOfWeek": "Friday"}}}, "timeOfDayUTC"),
    ],
)
def test_lustre_refuses_values_that_the_sdk_accepts(
    azure: Azure, systems: Any, changes: dict[str, Any], word: str
) -> None:
    make_network(azure)
    make_subnet(azure)
    with refused("InvalidParameter", word, status=400):
        systems.begin_create_or_update(GROUP, "lustre", _lustre(azure, **changes))


def test_lustre_is_created_long_before_it_is_healthy(azure: Azure, systems: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    poller = azure.begin(systems.begin_create_or_update, GROUP, "lustre", _lustre(azure))
    azure.advance(600)
    found = systems.get(GROUP, "lustre").properties
    assert (found.provisioning_state, found.health.state) == ("Creating", "Transitioning")
    azure.advance(310)
    found = poller.result(30).properties
    assert (found.provisioning_state, found.health.state) == ("Succeeded", "Transitioning")
    azure.advance(60)
    found = systems.get(GROUP, "lustre").properties
    assert (found.health.state, found.client_info.mgs_address) == ("Available", "10.0.0.4")
    with refused("PropertyChangeNotAllowed", "storageCapacityTiB"):
        systems.begin_create_or_update(GROUP, "lustre", _lustre(azure, tib=32))


def test_lustre_blocks_its_subnet_for_some_time_after_deletion(azure: Azure, systems: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    azure.done(systems.begin_create_or_update, GROUP, "lustre", _lustre(azure))
    subnets = azure.client("network").subnets
    poller = azure.begin(systems.begin_delete, GROUP, "lustre")
    azure.advance(301)
    poller.result(30)
    with refused("InUseSubnetCannotBeDeleted", "lustre", status=400):
        subnets.begin_delete(GROUP, NETWORK, SUBNET)
    azure.advance(30)
    azure.done(subnets.begin_delete, GROUP, NETWORK, SUBNET, seconds=60)


def test_a_failed_lustre_stays_failed(azure: Azure, systems: Any) -> None:
    make_network(azure)
    make_subnet(azure)
    azure.control(lustre_outcome="Failed")
    with pytest.raises(HttpResponseError, match="AmlfsInternalError"):
        azure.done(systems.begin_create_or_update, GROUP, "lustre", _lustre(azure))
    assert systems.get(GROUP, "lustre").properties.provisioning_state == "Failed"


def test_lustre_reports_the_required_subnet_size(azure: Azure) -> None:
    cache = azure.client("storagecache")
    sku = {"name": "AMLFS-Durable-Premium-500"}
    for tib, prefix in ((16, 27), (40, 26), (92, 25), (96, 24)):
        wanted = {"storageCapacityTiB": tib, "sku": sku}
        assert cache.get_required_aml_fs_subnets_size(wanted).filesystem_subnet_size == prefix
    make_network(azure)
    make_subnet(azure, prefix="10.0.0.0/28")
    question = {
        "storageCapacityTiB": 4,
        "sku": sku,
        "location": LOCATION,
        "filesystemSubnet": azure.id(_SUBNETS, NETWORK, SUBNET),
    }
    with refused("SubnetNotEnoughFreeIPAddresses", status=400):
        cache.check_aml_fs_subnets(question)
    make_subnet(azure, prefix="10.0.0.0/27")
    cache.check_aml_fs_subnets(question)
