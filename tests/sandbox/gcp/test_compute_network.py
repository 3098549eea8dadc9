"""Networks, subnets, routers, firewall rules and addresses; names begin with the kind of thing."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from google.api_core.exceptions import Forbidden

from tests.sandbox.gcp.support import NUMBER, PROJECT, REGION, Gcp
from tests.sandbox.gcp.support_compute import SOON, Compute, nat, turned_down

IN_USE = "resourceInUseByAnotherResource"


@pytest.fixture
def compute(gcp: Gcp) -> Compute:
    return Compute(gcp)


def test_a_network_is_visible_at_once_and_ready_after_its_operation(compute: Compute) -> None:
    begun = compute.insert_network()
    assert compute.networks.get(project=PROJECT, network="net").mtu == 1460
    with turned_down(400, "resourceNotReady", "is not ready"):
        compute.insert_subnet()
    with turned_down(400, "resourceNotReady"):
        compute.networks.delete_unary(project=PROJECT, network="net")
    assert compute.done(begun) == []
    compute.subnet()


def test_an_existing_network_is_refused_and_a_repeated_request_has_the_same_operation(
    compute: Compute,
) -> None:
    request = {
        "project": PROJECT,
        "request_id": str(uuid.uuid4()),
        "network_resource": {"name": "net", "auto_create_subnetworks": False},
    }
    first = compute.networks.insert_unary(request=request)
    assert compute.networks.insert_unary(request=request).name == first.name
    with turned_down(409, "alreadyExists", "already exists"):
        compute.insert_network()
    assert compute.gcp.state("compute:networks") == [
        f"compute:networks:projects/{PROJECT}/global/networks/net"
    ]


def test_a_failed_network_operation_leaves_nothing(
    compute: Compute,
) -> None:
    compute.gcp.control(failures=[{"action": "networks.insert", "code": "INTERNAL_ERROR", "message": "no"}])
    assert compute.done(compute.insert_network()) == [("INTERNAL_ERROR", "no")]
    assert compute.gcp.state() == []
    assert compute.done(compute.insert_network()) == []


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"name": "Net"}, "resource.name"),
        ({"mtu": 1200}, "resource.mtu"),
        ({"auto_create_subnetworks": None}, "Legacy networks"),
    ],
)
def test_an_invalid_network_is_refused(compute: Compute, wrong: dict[str, Any], words: str) -> None:
    with turned_down(400, "invalid", words):
        compute.insert_network(**{"name": "net", **wrong})


def test_a_network_with_subnets_rules_or_peerings_is_not_deleted(compute: Compute) -> None:
    compute.network()
    compute.subnet()
    with turned_down(400, IN_USE, "already being used by", "subnetworks/sub"):
        compute.networks.delete_unary(project=PROJECT, network="net")
    compute.done(compute.subnets.delete_unary(project=PROJECT, region=REGION, subnetwork="sub"))
    compute.done(compute.insert_firewall())
    with turned_down(400, IN_USE, "firewalls/inside"):
        compute.networks.delete_unary(project=PROJECT, network="net")
    compute.done(compute.firewalls.delete_unary(project=PROJECT, firewall="inside"))
    _peer(compute)
    with turned_down(400, IN_USE):
        compute.networks.delete_unary(project=PROJECT, network="net")


def _peer(compute: Compute) -> None:
    block = {
        "name": "block",
        "purpose": "VPC_PEERING",
        "address_type": "INTERNAL",
        "prefix_length": 20,
        "network": "global/networks/net",
    }
    addresses = compute.gcp.compute("GlobalAddresses")
    assert compute.done(addresses.insert_unary(project=PROJECT, address_resource=block)) == []
    wish = {"network": f"projects/{NUMBER}/global/networks/net", "reservedPeeringRanges": ["block"]}
    path = "/v1/services/servicenetworking.googleapis.com/connections"
    assert compute.gcp.rest("POST", path, wish)[0] == 200
    compute.gcp.advance(SOON)


def test_a_peering_keeps_its_block_and_can_be_deleted_by_the_consumer(compute: Compute) -> None:
    compute.network()
    _peer(compute)
    addresses = compute.gcp.compute("GlobalAddresses")
    with turned_down(400, IN_USE, "block"):
        addresses.delete_unary(project=PROJECT, address="block")
    peering = compute.networks.get(project=PROJECT, network="net").peerings[0].name
    body = {"name": peering}
    compute.done(
        compute.networks.remove_peering_unary(
            project=PROJECT, network="net", networks_remove_peering_request_resource=body
        )
    )
    compute.done(addresses.delete_unary(project=PROJECT, address="block"))
    compute.done(compute.networks.delete_unary(project=PROJECT, network="net"))
    assert compute.gcp.state() == []


def test_a_network_that_is_used_during_its_deletion_is_kept(compute: Compute) -> None:
    compute.network()
    begun = compute.networks.delete_unary(project=PROJECT, network="net")
    with turned_down(400, "resourceNotReady"):
        compute.insert_subnet()
    assert compute.done(begun) == []


def test_an_overlapping_subnet_fails_later_and_is_removed(compute: Compute) -> None:
    compute.network()
    pods = [{"range_name": "pods", "ip_cidr_range": "10.8.0.0/14"}]
    compute.subnet(secondary_ip_ranges=pods)
    [(code, text)] = compute.done(compute.insert_subnet("other", "10.9.0.0/20"))
    assert code == "INVALID_USAGE"
    assert "conflicts with existing subnetwork 'sub'" in text
    assert len(compute.gcp.state("compute:subnetworks")) == 1


@pytest.mark.parametrize(
    ("cidr", "pods"), [("10.0.0.1/20", ""), ("10.0.0.0/30", ""), ("10.0.0.0/20", "10.0.8.0/24"), ("x", "")]
)
def test_a_subnet_with_invalid_ranges_is_refused_at_once(compute: Compute, cidr: str, pods: str) -> None:
    compute.network()
    further = [{"range_name": "pods", "ip_cidr_range": pods}] if pods else []
    with turned_down(400, "invalid", "resource."):
        compute.insert_subnet(cidr=cidr, secondary_ip_ranges=further)


def test_a_subnet_patch_with_an_old_fingerprint_is_refused(compute: Compute) -> None:
    compute.network()
    compute.subnet()
    old = compute.subnets.get(project=PROJECT, region=REGION, subnetwork="sub").fingerprint
    wish = {"fingerprint": old, "private_ip_google_access": True}
    arguments = {"project": PROJECT, "region": REGION, "subnetwork": "sub", "subnetwork_resource": wish}
    assert compute.done(compute.subnets.patch_unary(request=arguments)) == []
    assert compute.subnets.get(project=PROJECT, region=REGION, subnetwork="sub").private_ip_google_access
    with turned_down(412, "conditionNotMet", "fingerprint"):
        compute.subnets.patch_unary(request=arguments)


def test_a_subnet_with_a_nat_or_a_forwarding_rule_is_in_use(compute: Compute) -> None:
    compute.network()
    link = compute.subnet()
    mine: dict[str, Any] = {
        "source_subnetwork_ip_ranges_to_nat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": link, "source_ip_ranges_to_nat": ["ALL_IP_RANGES"]}],
    }
    compute.done(compute.insert_router(nats=[nat(**mine)]))
    with turned_down(400, IN_USE, "routers/out"):
        compute.subnets.delete_unary(project=PROJECT, region=REGION, subnetwork="sub")
    inner = {"load_balancing_scheme": "INTERNAL", "subnetwork": compute.subnet("two", "10.1.0.0/20")}
    rules = compute.gcp.compute("ForwardingRules")
    body = {"name": "inner", **inner}
    compute.done(rules.insert_unary(project=PROJECT, region=REGION, forwarding_rule_resource=body))
    with turned_down(400, IN_USE, "forwardingRules/inner"):
        compute.subnets.delete_unary(project=PROJECT, region=REGION, subnetwork="two")


def test_a_router_patch_deletes_omitted_nats(compute: Compute) -> None:
    compute.network()
    one, two = compute.subnet(), compute.subnet("two", "10.1.0.0/20")
    nats = [
        nat(
            name,
            source_subnetwork_ip_ranges_to_nat="LIST_OF_SUBNETWORKS",
            subnetworks=[{"name": link, "source_ip_ranges_to_nat": ["ALL_IP_RANGES"]}],
        )
        for name, link in (("one", one), ("two", two))
    ]
    compute.done(compute.insert_router(nats=nats))
    assert compute.nats() == ["one", "two"]
    begun = compute.routers.patch_unary(
        project=PROJECT, region=REGION, router="out", router_resource={"nats": nats[:1]}
    )
    assert compute.done(begun) == []
    assert compute.nats() == ["one"]


def test_two_nats_for_all_subnets_of_a_network_fail_later(compute: Compute) -> None:
    compute.network()
    assert compute.done(compute.insert_router(nats=[nat()])) == []
    [(code, text)] = compute.done(compute.insert_router("second", nats=[nat()]))
    assert code == "INVALID_USAGE"
    assert "router 'out'" in text


def test_a_private_nat_does_not_overlap_a_public_one(compute: Compute) -> None:
    compute.network()
    private = {**nat("inner"), "type_": "PRIVATE"}
    with turned_down(400, "invalid", "A private NAT"):
        compute.insert_router(nats=[nat(), private])
    del private["nat_ip_allocate_option"]
    assert compute.done(compute.insert_router(nats=[nat(), private])) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"nat_ip_allocate_option": "MANUAL_ONLY"},
        {"max_ports_per_vm": 1024},
        {"enable_dynamic_port_allocation": True, "min_ports_per_vm": 100},
        {"enable_dynamic_port_allocation": True, "enable_endpoint_independent_mapping": True},
    ],
)
def test_a_nat_with_conflicting_settings_is_refused(compute: Compute, wrong: dict[str, Any]) -> None:
    compute.network()
    with turned_down(400, "invalid", "resource.nats"):
        compute.insert_router(nats=[nat(**wrong)])


@pytest.mark.parametrize(
    "wrong",
    [
        {"allowed": []},
        {"allowed": [{"I_p_protocol": "icmp", "ports": ["1"]}]},
        {"allowed": [{"I_p_protocol": "tcp", "ports": ["70000"]}]},
        {"direction": "EGRESS", "source_ranges": ["10.0.0.0/8"]},
        {"source_ranges": ["10.0.0.1/8"]},
        {"target_tags": ["Node"]},
        {"source_tags": ["a"], "target_service_accounts": ["x@y"]},
        {"priority": 70000},
    ],
)
def test_an_invalid_firewall_rule_is_refused(compute: Compute, wrong: dict[str, Any]) -> None:
    compute.network()
    with turned_down(400, "invalid", "resource."):
        compute.insert_firewall(**wrong)


def test_a_firewall_rule_of_a_missing_network_is_refused(compute: Compute) -> None:
    with turned_down(400, "invalid", "cannot be found"):
        compute.insert_firewall()


def test_an_address_in_use_is_not_deleted(compute: Compute) -> None:
    addresses = compute.gcp.compute("Addresses")
    begun = addresses.insert_unary(project=PROJECT, region=REGION, address_resource={"name": "out"})
    known = addresses.get(project=PROJECT, region=REGION, address="out")
    assert known.status == "RESERVING"
    compute.done(begun)
    assert addresses.get(project=PROJECT, region=REGION, address="out").status == "RESERVED"
    compute.network()
    mine = nat(nat_ip_allocate_option="MANUAL_ONLY", nat_ips=[known.self_link])
    assert compute.done(compute.insert_router(nats=[mine])) == []
    assert addresses.get(project=PROJECT, region=REGION, address="out").status == "IN_USE"
    with turned_down(400, IN_USE):
        addresses.delete_unary(project=PROJECT, region=REGION, address="out")
    compute.done(compute.routers.delete_unary(project=PROJECT, region=REGION, router="out"))
    compute.done(addresses.delete_unary(project=PROJECT, region=REGION, address="out"))
    assert compute.gcp.state("compute:addresses") == []


def test_a_range_for_google_services_has_a_minimum_size_and_no_overlap(compute: Compute) -> None:
    compute.network()
    compute.subnet()
    addresses = compute.gcp.compute("GlobalAddresses")
    block = {
        "name": "block",
        "purpose": "VPC_PEERING",
        "address_type": "INTERNAL",
        "network": "global/networks/net",
    }
    for wrong in ({}, {"prefix_length": 31}, {"prefix_length": 20, "address": "10.0.0.0"}):
        with turned_down(400, "invalid", "resource."):
            addresses.insert_unary(project=PROJECT, address_resource={**block, **wrong})
    compute.done(addresses.insert_unary(project=PROJECT, address_resource={**block, "prefix_length": 20}))
    found = addresses.get(project=PROJECT, address="block")
    [(code, _)] = compute.done(compute.insert_subnet("over", f"{found.address}/24"))
    assert code == "INVALID_USAGE"


def test_internal_addresses_need_separate_permissions(compute: Compute) -> None:
    compute.network()
    block = {
        "name": "block",
        "purpose": "VPC_PEERING",
        "address_type": "INTERNAL",
        "prefix_length": 20,
        "network": "global/networks/net",
    }
    addresses = compute.gcp.compute("GlobalAddresses")
    compute.done(addresses.insert_unary(project=PROJECT, address_resource=block))
    addresses.delete_unary(project=PROJECT, address="block")
    wanted = [call["iam_action"] for call in compute.gcp.changing() if call["action"].startswith("globalA")]
    assert wanted == ["compute.globalAddresses.createInternal", "compute.globalAddresses.deleteInternal"]


def test_exceeded_per_minute_quotas_are_a_403(compute: Compute) -> None:
    compute.gcp.control(faults=[{"kind": "throttle", "service": "compute", "times": 1}])
    with turned_down(403, "rateLimitExceeded", "Quota exceeded", "per minute"):
        compute.insert_network()


def test_too_many_concurrent_operations_are_a_403(compute: Compute) -> None:
    compute.gcp.control(quotas={"global/CONCURRENT_OPERATIONS": 1})
    compute.insert_network()
    with pytest.raises(Forbidden, match="Concurrent operations") as caught:
        compute.insert_network("second")
    assert caught.value.reason == "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED"
    assert len(compute.gcp.state()) == 1


def test_a_call_of_a_disabled_api_is_a_403_with_the_activation_url(compute: Compute) -> None:
    compute.gcp.control(apis={"compute.googleapis.com": False})
    with turned_down(403, "accessNotConfigured", "console.developers.google.com", NUMBER):
        compute.insert_network()


def test_an_exceeded_resource_quota_fails_the_operation(compute: Compute) -> None:
    compute.gcp.control(quotas={"global/NETWORKS": 1})
    compute.network()
    [(code, text)] = compute.done(compute.insert_network("second"))
    assert code == "QUOTA_EXCEEDED"
    assert "'NETWORKS' exceeded.  Limit: 1.0 globally" in text
    assert len(compute.gcp.state()) == 1


def test_lists_are_filtered_and_paged(compute: Compute) -> None:
    for name in ("a-one", "a-two", "b-one"):
        compute.network(name)
    listed = compute.networks.list(request={"project": PROJECT, "filter": 'name eq "a-.*"', "max_results": 1})
    assert [row.name for row in listed] == ["a-one", "a-two"]
    either = '(name = "a-one") OR (name = "b*")'
    assert [row.name for row in compute.networks.list(request={"project": PROJECT, "filter": either})] == [
        "a-one",
        "b-one",
    ]
    with turned_down(400, "invalid", "filter"):
        list(compute.networks.list(request={"project": PROJECT, "filter": "name ="}))


def test_late_lists_omit_new_resources_and_show_deleted_ones(compute: Compute) -> None:
    compute.gcp.control(lag_s={"lists": SOON * 3})
    compute.network()
    assert list(compute.networks.list(project=PROJECT)) == []
    compute.gcp.advance(SOON * 3)
    assert [row.name for row in compute.networks.list(project=PROJECT)] == ["net"]
    compute.done(compute.networks.delete_unary(project=PROJECT, network="net"))
    assert [row.name for row in compute.networks.list(project=PROJECT)] == ["net"]
    compute.gcp.advance(SOON * 3)
    assert list(compute.networks.list(project=PROJECT)) == []
    with pytest.raises(ValueError, match="nothing called ids"):
        compute.gcp.control(lag_s={"ids": 1})
