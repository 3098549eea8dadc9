"""The stand-in's Blob Storage admits the callers that Azure admits, and keeps directories as Azure does."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobBlock, ContainerClient

from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.blob import access
from cloudrec_sandbox.azure.blob.errors import BlobError
from cloudrec_sandbox.azure.services.network import service_endpoints
from cloudrec_sandbox.core.world import World
from tests.sandbox.azure.support import GROUP, Azure, headers_of
from tests.sandbox.azure.support_blobs import ACCOUNT, CONTAINER, READER, blobs, grant, make_account
from tests.sandbox.azure.support_network import NETWORK, SUBNET, make_network, make_subnet

ADDRESS = "203.0.113.7"  # of the user's machine, as the stand-in sees it


@pytest.fixture(autouse=True)
def _group(azure: Azure) -> None:
    azure.group()


@pytest.fixture
def container(azure: Azure) -> ContainerClient:
    """A container of a hierarchical account whose contents the operator may change."""
    make_account(azure)
    grant(azure)
    return blobs(azure)


def code_of(act: Callable[[], Any]) -> tuple[int | None, str]:
    """The status and the code with which a request is refused."""
    with pytest.raises(HttpResponseError) as caught:
        act()
    return caught.value.status_code, headers_of(caught.value).get("x-ms-error-code", "")


def test_owning_the_subscription_gives_no_right_to_data_and_a_role_counts_later(azure: Azure) -> None:
    make_account(azure)
    data = blobs(azure)
    refused = (403, "AuthorizationPermissionMismatch")
    assert code_of(lambda: data.upload_blob("a", b"1")) == refused
    assert code_of(lambda: list(data.list_blobs())) == refused
    grant(azure, waits=False)
    assert code_of(lambda: data.upload_blob("a", b"1")) == refused
    azure.advance(60)
    data.upload_blob("a", b"1")
    assert data.download_blob("a").readall() == b"1"


def test_a_reader_reads_and_changes_nothing(azure: Azure, container: ContainerClient) -> None:
    container.upload_blob("a", b"1")
    azure.control(clients={"reader": {"secret": "s", "object_id": "12345678-0000-4000-8000-000000000001"}})
    grant(azure, READER, principal="12345678-0000-4000-8000-000000000001")
    keys = {"client_id": "reader", "client_secret": "s"}
    reader = blobs(azure, credential=azure.credential(**keys))
    assert reader.download_blob("a").readall() == b"1"
    assert reader.get_container_properties().name == CONTAINER
    refused = (403, "AuthorizationPermissionMismatch")
    assert code_of(lambda: reader.upload_blob("b", b"1")) == refused
    assert code_of(lambda: reader.upload_blob("b", bytes(3000))) == refused
    assert code_of(lambda: reader.delete_blob("a")) == refused


def test_network_rules_admit_listed_addresses_alone(azure: Azure) -> None:
    make_account(azure, networkAcls={"defaultAction": "Deny", "ipRules": []})
    grant(azure)
    data = blobs(azure)
    refused = (403, "AuthorizationFailure")
    assert code_of(lambda: list(data.list_blobs())) == refused
    accounts = azure.client("storage").storage_accounts
    rules = {"defaultAction": "Deny", "ipRules": [{"value": ADDRESS}]}
    accounts.update(GROUP, ACCOUNT, {"properties": {"networkAcls": rules}})
    assert list(data.list_blobs()) == []
    azure.control(address="198.51.100.4")  # the laptop moves to another network
    assert code_of(lambda: list(data.list_blobs())) == refused
    azure.control(address=ADDRESS)
    accounts.update(GROUP, ACCOUNT, {"properties": {"publicNetworkAccess": "Disabled"}})
    assert code_of(lambda: list(data.list_blobs())) == refused


def test_a_subnets_rule_admits_no_one_outside_of_it(azure: Azure) -> None:
    make_network(azure)
    make_subnet(azure, serviceEndpoints=[{"service": "Microsoft.Storage"}])
    subnet = azure.id("Microsoft.Network/virtualNetworks/subnets", NETWORK, SUBNET)
    rules = {"defaultAction": "Deny", "virtualNetworkRules": [{"id": subnet, "action": "Allow"}]}
    make_account(azure, networkAcls=rules)
    grant(azure)
    assert code_of(lambda: list(blobs(azure).list_blobs())) == (403, "AuthorizationFailure")


_CLUSTER = "/subscriptions/s/resourceGroups/g/providers/Microsoft.ContainerService/managedClusters/c"
_NEAR = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/n/subnets/nodes"


def _world(service: str, region: str) -> World:
    """A world with a cluster in a subnet that has one service endpoint, in a network of a region."""
    world, properties = World({}), {"serviceEndpoints": [{"service": service}]}
    service_endpoints.complete(properties, region)
    pool = ("Microsoft.ContainerService/managedClusters/agentPools", {"vnetSubnetID": _NEAR})
    subnet = ("Microsoft.Network/virtualNetworks/subnets", properties)
    for id_, (type_, shown) in ((f"{_CLUSTER}/agentPools/p", pool), (_NEAR, subnet)):
        document = {"id": id_, "properties": shown}
        store(world).add(Resource(id=id_, type=type_, document=document, made_at=0.0, changed_at=0.0))
    return world


@pytest.mark.parametrize(
    ("service", "network", "account", "is_let_in"),
    [
        ("Microsoft.Storage", "eastus", "eastus", True),
        ("Microsoft.Storage", "eastus", "westus", True),  # its pair
        ("Microsoft.Storage", "eastus", "westeurope", False),
        ("Microsoft.Storage", "eastus", "westus3", False),  # has eastus as its pair, and is no pair of it
        ("Microsoft.Storage", "westus3", "eastus", True),
        ("Microsoft.Storage.Global", "eastus", "westeurope", True),
        ("Microsoft.Storage.Global", "eastus", "eastus", True),
        ("Microsoft.KeyVault", "eastus", "eastus", False),
    ],
)
def test_a_clusters_service_endpoint_reaches_accounts_by_region(
    service: str, network: str, account: str, *, is_let_in: bool
) -> None:
    rules = {"defaultAction": "Deny", "virtualNetworkRules": [{"id": _NEAR}], "ipRules": []}
    document = {"location": account, "properties": {"networkAcls": rules}}
    there = Resource(id="/a", type="", document=document, made_at=0.0, changed_at=0.0)
    sender, world = access.Sender(principal="p", cluster=_CLUSTER), _world(service, network)
    if is_let_in:
        access.check_network(world, there, sender)
        return
    with pytest.raises(BlobError):
        access.check_network(world, there, sender)


def test_keys_and_tokens_for_other_services_are_refused(azure: Azure) -> None:
    make_account(azure, allowSharedKeyAccess=False)
    grant(azure)
    by_key = blobs(azure, credential=base64.b64encode(b"k" * 64).decode())
    assert code_of(lambda: list(by_key.list_blobs())) == (403, "KeyBasedAuthenticationNotPermitted")
    path = f"/blob/{ACCOUNT}/{CONTAINER}?restype=container"
    for token, code in ((azure.token(), "InvalidAuthenticationInfo"), ("x", "InvalidAuthenticationInfo")):
        status, headers, _ = request(azure, path, {"Authorization": f"Bearer {token}"})
        assert (status, headers["x-ms-error-code"]) == (401, code)
    status, headers, _ = request(azure, path, {})
    assert (status, headers["x-ms-error-code"]) == (401, "NoAuthenticationInformation")
    assert "storage.azure.com" in headers["www-authenticate"]


def request(azure: Azure, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """A request that no SDK would make."""
    connection = azure.connection()
    connection.request("GET", path, headers={"x-ms-version": "2024-11-04", **headers})
    answer = connection.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.headers.items()}, answer.read()


def test_what_does_not_exist_is_named(azure: Azure, container: ContainerClient) -> None:
    other = blobs(azure, account="crother")
    assert code_of(lambda: list(other.list_blobs())) == (404, "ResourceNotFound")
    azure.client("storage").blob_containers.delete(GROUP, ACCOUNT, CONTAINER)
    assert code_of(lambda: container.upload_blob("a", b"")) == (409, "ContainerBeingDeleted")
    azure.advance(30)
    assert code_of(lambda: container.upload_blob("a", b"")) == (404, "ContainerNotFound")
    azure.client("storage").blob_containers.create(GROUP, ACCOUNT, CONTAINER, {})
    assert list(container.list_blobs()) == []  # the data of the first container is gone
    container.upload_blob("a", b"")
    with pytest.raises(HttpResponseError, match="no PUT blob lease") as caught:
        container.get_blob_client("a").acquire_lease()
    assert caught.value.status_code == 501


def test_directories_exist_by_themselves(container: ContainerClient) -> None:
    container.upload_blob("a/b/file", b"12")
    listed = {blob.name: blob.metadata or {} for blob in container.list_blobs(include=["metadata"])}
    assert listed == {"a": {"hdi_isfolder": "true"}, "a/b": {"hdi_isfolder": "true"}, "a/b/file": {}}
    assert [each.name for each in container.walk_blobs()] == ["a/"]
    assert [each.name for each in container.walk_blobs("a/b/")] == ["a/b/file"]
    assert code_of(lambda: container.delete_blob("a")) == (409, "DirectoryIsNotEmpty")
    container.delete_blob("a/b/file")
    assert [each.name for each in container.walk_blobs("a/")] == ["a/b/"]  # the directories stay
    container.delete_blob("a/b")
    container.delete_blob("a")
    assert list(container.list_blobs()) == []


def test_a_path_is_either_a_file_or_a_directory(container: ContainerClient) -> None:
    container.upload_blob("a/file", b"")
    conflict = (409, "PathConflict")
    assert code_of(lambda: container.upload_blob("a/file/below", b"")) == conflict
    assert code_of(lambda: container.upload_blob("a", b"", overwrite=True)) == conflict
    assert code_of(lambda: container.get_blob_client("a/file/below").stage_block("YQ==", b"1")) == conflict


def test_blocks_become_a_blob_when_they_are_listed(container: ContainerClient) -> None:
    blob = container.get_blob_client("a")
    blob.stage_block("1", b"one")
    blob.stage_block("2", b"two")
    with pytest.raises(ResourceNotFoundError):
        blob.get_blob_properties()
    assert [each.name for each in container.list_blobs()] == []
    assert code_of(lambda: blob.stage_block("longer", b"three")) == (400, "InvalidBlobOrBlock")
    assert code_of(lambda: blob.commit_block_list([BlobBlock("3")])) == (400, "InvalidBlockList")
    blob.commit_block_list([BlobBlock("2"), BlobBlock("1"), BlobBlock("2")])
    assert blob.download_blob().readall() == b"twoonetwo"
    committed, staged = blob.get_block_list("all")
    assert ([each.size for each in committed], staged) == ([3, 3, 3], [])
    blob.commit_block_list([BlobBlock("1")])  # committed blocks can be used again
    assert blob.download_blob().readall() == b"one"


def test_a_fault_and_a_kill_can_be_ordered_for_an_operation(azure: Azure, container: ContainerClient) -> None:
    azure.control(faults=[{"kind": "throttle", "service": "blob", "action": "Put Blob", "times": 1}])
    assert code_of(lambda: container.upload_blob("a", b"")) == (503, "ServerBusy")
    container.upload_blob("a", b"")
    last = azure.calls()[-1]
    assert (last["service"], last["action"]) == ("blob", "Put Blob")
    assert last["iam_action"].endswith("/blobs/write")
