"""Resource groups, and lists of what is in them."""

from __future__ import annotations

from tests.sandbox.azure.support import GROUP, LOCATION, Azure, refused
from tests.sandbox.azure.support_network import (
    NETWORK,
    make_address,
    make_interface,
    make_network,
    make_subnet,
    put_nat,
)

NAT = {"location": LOCATION, "sku": {"name": "Standard"}}


def state(azure: Azure, group: str = GROUP) -> str:
    found: str = azure.client("resource").resource_groups.get(group).properties.provisioning_state
    return found


def test_a_missing_group_accepts_no_resource(azure: Azure) -> None:
    gateways = azure.client("network").nat_gateways
    with refused("ResourceGroupNotFound", status=404):
        gateways.begin_create_or_update(GROUP, "nat", NAT)
    with refused("ResourceGroupNotFound", status=404):
        gateways.get(GROUP, "nat")
    with refused("ResourceGroupNotFound", status=404):
        list(gateways.list(GROUP))


def test_a_group_being_deleted_accepts_no_resource(azure: Azure) -> None:
    azure.group()
    groups = azure.client("resource").resource_groups
    poller = azure.begin(groups.begin_delete, GROUP)
    assert state(azure) == "Deleting"
    with refused("ResourceGroupBeingDeleted", status=409):
        azure.client("network").nat_gateways.begin_create_or_update(GROUP, "nat", NAT)
    with refused("ResourceGroupBeingDeleted", status=409):
        azure.group()
    azure.advance(60)
    poller.result(30)
    assert not groups.check_existence(GROUP)
    azure.group()


def test_a_new_group_is_visible_with_a_delay(azure: Azure) -> None:
    azure.control(lag_s={"groups": 20})
    azure.group()
    with refused("ResourceGroupNotFound", status=404):
        azure.client("resource").resource_groups.get(GROUP)
    with refused("ResourceGroupNotFound", status=404):
        azure.client("network").nat_gateways.begin_create_or_update(GROUP, "nat", NAT)
    azure.advance(20)
    assert azure.client("resource").resource_groups.get(GROUP).name == GROUP
    azure.begin(azure.client("network").nat_gateways.begin_create_or_update, GROUP, "nat", NAT)


def test_deleting_a_group_deletes_its_resources_in_a_valid_order(azure: Azure) -> None:
    azure.group()
    make_network(azure)
    address = make_address(azure)
    poller = put_nat(azure, addresses=(address.id,))
    azure.advance(60)
    gateway = poller.result(30)
    make_subnet(azure, natGateway={"id": gateway.id})
    make_interface(azure)
    azure.done(azure.client("resource").resource_groups.begin_delete, GROUP, seconds=300)
    assert (azure.state(), azure.pending()) == ([], [])


def test_a_group_with_resources_in_use_by_others_is_not_deleted(azure: Azure) -> None:
    azure.group()
    azure.group("other")
    make_network(azure)
    make_subnet(azure)
    azure.done(azure.client("network").nat_gateways.begin_create_or_update, GROUP, "nat", NAT)
    row = {
        "name": "one",
        "properties": {
            "subnet": {"id": azure.id("Microsoft.Network/virtualNetworks/subnets", NETWORK, "nodes")}
        },
    }
    body = {"location": LOCATION, "properties": {"ipConfigurations": [row]}}
    azure.done(azure.client("network").network_interfaces.begin_create_or_update, "other", "nic", body)
    with refused("ResourceGroupDeletionBlocked", NETWORK, status=409):
        azure.done(azure.client("resource").resource_groups.begin_delete, GROUP)
    assert state(azure) == "Succeeded"
    kinds = {entry.split(":")[1] for entry in azure.state() if f"/{GROUP}/" in entry}
    assert kinds == {"virtualNetworks", "virtualNetworks/subnets"}


def test_groups_are_found_by_a_tag(azure: Azure) -> None:
    azure.group("one", owner="me")
    azure.group("two", owner="you")
    groups = azure.client("resource").resource_groups
    found = groups.list(filter="tagName eq 'owner' and tagValue eq 'me'")
    assert [group.name for group in found] == ["one"]


def test_the_list_of_resources_is_eventually_consistent(azure: Azure) -> None:
    azure.control(lag_s={"resources": 600})
    azure.group()
    gateways, resources = azure.client("network").nat_gateways, azure.client("resource").resources
    body = {**NAT, "tags": {"owner": "me"}}
    wanted = "tagName eq 'owner' and tagValue eq 'me'"
    azure.done(gateways.begin_create_or_update, GROUP, "nat", body, seconds=60)
    assert list(resources.list(filter=wanted)) == []
    azure.advance(600)
    assert [(row.name, row.tags) for row in resources.list(filter=wanted)] == [("nat", None)]
    assert list(resources.list(filter="tagName eq 'owner' and tagValue eq 'you'")) == []
    azure.done(gateways.begin_delete, GROUP, "nat", seconds=60)
    assert [row.type for row in resources.list_by_resource_group(GROUP)] == ["Microsoft.Network/natGateways"]
    azure.advance(600)
    assert list(resources.list_by_resource_group(GROUP)) == []


def test_resources_are_filtered_by_type_and_can_be_expanded(azure: Azure) -> None:
    azure.group()
    gateways, resources = azure.client("network").nat_gateways, azure.client("resource").resources
    azure.done(gateways.begin_create_or_update, GROUP, "nat", {**NAT, "tags": {"a": "b"}}, seconds=60)
    row = next(resources.list(filter="resourceType eq 'Microsoft.Network/natGateways'"))
    assert (row.tags, row.created_time) == ({"a": "b"}, None)
    assert next(resources.list(expand="createdTime")).created_time is not None
    with refused("InvalidFilterInQueryString", status=400):
        list(resources.list(filter="tagName eq 'a' and resourceType eq 'Microsoft.Network/natGateways'"))


def test_the_list_of_resources_has_pages(azure: Azure) -> None:
    azure.group()
    gateways, resources = azure.client("network").nat_gateways, azure.client("resource").resources
    for name in ("one", "two", "three"):
        azure.done(gateways.begin_create_or_update, GROUP, name, {**NAT, "tags": {"a": name}}, seconds=60)
    pages = [[row.name for row in page] for page in resources.list(filter="tagName eq 'a'", top=2).by_page()]
    assert pages == [["one", "two"], ["three"]]


def test_resources_cannot_be_filtered_by_other_fields(azure: Azure) -> None:
    azure.group()
    resources = azure.client("resource").resources
    assert list(resources.list(filter="substringof('nat', name)")) == []
    for text in ("sku eq 'Standard'", "tagName eq 'a' and location eq 'eastus'"):
        with refused("InvalidFilterInQueryString", status=400):
            list(resources.list(filter=text))
