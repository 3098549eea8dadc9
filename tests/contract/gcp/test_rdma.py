"""Machines with RDMA cards: their networks, their nodes and what is checked before, against the stand-in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.engine.graph import Condition
from cloudrec.kubernetes.addons import manage
from cloudrec.kubernetes.addons.bundled import objects_of
from cloudrec.providers.base.access import cluster_target
from cloudrec.providers.gcp import access, preflight
from cloudrec.providers.gcp.offers import KNOWN
from tests.contract.gcp.support import Site, whole
from tests.sandbox.gcp.support import PROJECT
from tests.sandbox.gcp.support import Gcp as Cloud

A4 = "a4-highgpu-8g"
TYPES = ("a3-ultragpu-8g", A4)
ZONE = "us-central1-b"


def up(cloud: Cloud, tmp_path: Path, **given: Any) -> Site:
    """A cluster of spot nodes of one machine type."""
    spec: dict[str, Any] = {"zones": (ZONE,), "nodes": 2, "capacity": "spot", **given}
    site = whole(cloud, tmp_path, **spec)
    site.up()
    return site


def machines(cloud: Cloud, zone: str, machine: str) -> list[Any]:
    listed = cloud.compute("Instances").list(project=PROJECT, zone=zone)
    return [each for each in listed if each.machine_type.endswith(machine)]


@pytest.mark.parametrize("machine", TYPES)
def test_each_node_has_a_second_gvnic_and_eight_rdma_cards_and_down_leaves_nothing(
    cloud: Cloud, tmp_path: Path, machine: str
) -> None:
    before = cloud.state()
    site = up(cloud, tmp_path, instance_types=(machine,))
    nodes = machines(cloud, ZONE, machine)
    assert len(nodes) == 2
    for node in nodes:
        assert [card.nic_type for card in node.network_interfaces] == ["GVNIC"] * 2 + ["MRDMA"] * 8
        assert len({card.subnetwork for card in node.network_interfaces}) == 10
        assert len({card.network for card in node.network_interfaces}) == 3
    network = cloud.compute("Networks").get(project=PROJECT, network="cloudrec-t-us-central1-rdma-b")
    assert (network.mtu, network.network_profile.rpartition("/")[2]) == (8896, f"{ZONE}-vpc-roce")
    assert {seen.condition for seen in site.found().values()} == {Condition.READY}
    assert site.planned() == {}
    site.down()
    assert cloud.state() == before


def test_the_pods_networks_are_those_of_the_nodes_in_their_order(cloud: Cloud, tmp_path: Path) -> None:
    site = up(cloud, tmp_path, instance_types=(A4,))
    answer = access.networks(site.layout(), KNOWN[A4], ZONE)
    (node, *_) = machines(cloud, ZONE, A4)
    assert [(each.interface, each.subnetwork) for each in answer] == [
        (card.name.replace("nic", "eth"), card.subnetwork.rpartition("/")[2])
        for card in node.network_interfaces[1:]
    ]
    target = cluster_target(
        kubeconfig=tmp_path,
        context="c",
        account="ns/sa",
        fabric="rdma",
        instance_type=A4,
        gpus=8,
        networks=answer,
        built_in=["nvidia-device-plugin"],
    )
    (networks, _) = manage.needed(target)
    made = objects_of(networks, target, cluster="t", labels={})
    modes = [each["spec"]["deviceMode"] for each in made if each["kind"] == "GKENetworkParamSet"]
    assert modes == ["NetDevice"] + ["RDMA"] * 8


def test_nodes_in_another_zone_use_the_network_of_that_zone(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(cloud.env, "GOOGLE_CLOUD_REGION", "us-west3")
    cloud.control(capacity={f"{A4}/us-west3-b/spot": 0})
    site = up(cloud, tmp_path, instance_types=(A4,), zones=("us-west3-b", "us-west3-c"))
    assert machines(cloud, "us-west3-b", A4) == []
    for node in machines(cloud, "us-west3-c", A4):
        cards = [card for card in node.network_interfaces if card.nic_type == "MRDMA"]
        assert {card.network.rpartition("/")[2] for card in cards} == {"cloudrec-t-us-west3-rdma-c"}
    assert {key for key in site.found() if key.startswith("network/t-rdma")} == {
        "network/t-rdma-b",
        "network/t-rdma-c",
    }
    assert site.planned() == {}


def findings(site: Site, check: str, **changed: Any) -> list[tuple[bool, str]]:
    found = preflight.findings(site.gcp, replace(site.layout(), **changed))
    return [(each.ok, each.found) for each in found if each.check.startswith(check)]


def test_a_zone_without_the_network_profile_is_refused_before_anything_is_made(
    cloud: Cloud, tmp_path: Path
) -> None:
    site = whole(cloud, tmp_path, instance_types=(A4,), zones=(ZONE,), nodes=2, capacity="spot")
    assert findings(site, "network profile") == [(True, "it exists")]
    other = "us-central1-f"
    assert findings(site, "network profile", gpu_zones=(other,), offered={A4: (other,)}) == [
        (False, "it does not exist")
    ]
    assert findings(site, "GKE version for") == [(True, "the newest is 1.36.1-gke.1480000")]
    old = replace(KNOWN[A4], gke_since="1.99.0-gke.1")
    assert findings(site, "GKE version for", hardware={A4: old}) == [
        (False, "the newest is 1.36.1-gke.1480000")
    ]
    assert findings(site, "fabric of") == []


def test_an_on_demand_machine_that_google_does_not_sell_so_is_refused(cloud: Cloud, tmp_path: Path) -> None:
    site = whole(cloud, tmp_path, instance_types=TYPES[:1], zones=(ZONE,), nodes=2, capacity="on-demand")
    assert findings(site, "machine type") == [(False, "sold as spot or flex-start or reservation only")]
