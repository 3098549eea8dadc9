"""The network, identities and storage of a cluster, described without any cloud call."""

from __future__ import annotations

import ipaddress

import pytest

from cloudrec.engine.graph import Resource
from cloudrec.errors import SpecError
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.layout import AzureLayout
from cloudrec.providers.azure.network import network
from cloudrec.providers.azure.registry import registry
from cloudrec.providers.azure.settings import settings_of
from cloudrec.providers.azure.storage import lustre, storage
from cloudrec.spec.models import ClusterSpec
from tests.unit.providers_azure.support import CALLER, layout

PARTS = (groups, network, identity, storage, registry, lustre)


def described(of: AzureLayout) -> dict[str, Resource]:
    return {resource.key: resource for part in PARTS for resource in part.resources(of)}


def test_everything_in_the_group_needs_the_group_and_its_registration() -> None:
    there = described(layout())
    assert {"resource-group/t", "registration/t-network"} <= set(there["virtual-network/t"].needs)
    assert {"resource-group/t", "registration/t-storage"} <= set(there["storage-account/t"].needs)
    assert not [key for key in there if "storagecache" in key]
    assert "registration/t-storagecache" in described(layout(lustre_tib=8))


def test_the_infiniband_feature_is_registered_if_nodes_have_it() -> None:
    assert "registration/t-aks-infiniband" in described(layout(types=("Standard_ND96asr_v4",)))
    assert "registration/t-aks-infiniband" not in described(layout(types=("Standard_NC4as_T4_v3",)))


def test_the_subnets_are_disjoint_and_written_sequentially() -> None:
    there = described(layout(lustre_tib=8, vnet_cidr="172.20.0.0/20"))
    nodes, files = there["subnet/t-nodes"], there["subnet/t-lustre"]
    blocks = [ipaddress.IPv4Network(each.properties.requested()["cidr"]) for each in (nodes, files)]
    assert not blocks[0].overlaps(blocks[1])
    assert all(block.subnet_of(ipaddress.IPv4Network("172.20.0.0/20")) for block in blocks)
    assert nodes.key in files.needs


def test_pods_outside_the_network_range_can_communicate() -> None:
    rules = described(layout(pod_cidr="10.8.0.0/14"))["network-security-group/t"].properties.requested()[
        "rules"
    ]
    assert rules == (
        ("cloudrec-nodes-to-pods", "10.42.0.0/17", "10.8.0.0/14"),
        ("cloudrec-pods-to-pods", "10.8.0.0/14", "10.8.0.0/14"),
    )


def test_the_storage_admits_only_the_nodes_and_listed_addresses() -> None:
    named = "203.0.113.7/32,203.0.113.8/31,198.51.100.0/24"
    wanted = described(layout(access=named))["storage-account/t"].properties.requested()
    assert not wanted["allow_blob_public_access"]
    assert not wanted["allow_shared_key_access"]
    assert wanted["addresses"] == ("198.51.100.0/24", "203.0.113.7", "203.0.113.8", "203.0.113.9")
    assert [subnet.rpartition("/")[2] for subnet in wanted["subnets"]] == ["cloudrec-t-nodes"]
    assert described(layout())["storage-account/t"].properties.requested()["addresses"] == ()


def test_each_identity_has_only_the_roles_that_it_needs() -> None:
    there = described(layout(prefix="team/a"))
    wanted = {key: each.properties.requested() for key, each in there.items()}
    roles = {
        key.partition("/")[2]: (one["role"], one["scope"].rpartition("/")[2])
        for key, one in wanted.items()
        if key.startswith("role-assignment/")
    }
    account = wanted["storage-account/t"]["account"]
    assert roles == {
        "t-cluster-network": ("Network Contributor", "cloudrec-t-nodes"),
        "t-cluster-kubelet": ("Managed Identity Operator", "cloudrec-t-kubelet"),
        "t-kubelet-acr-pull": ("AcrPull", account),
        "t-kubelet-acr-reader": ("Container Registry Repository Reader", account),
        "t-pod-storage": ("Storage Blob Data Contributor", "data"),
        f"t-operator-storage-{CALLER.object_id}": ("Storage Blob Data Contributor", "data"),
        f"t-operator-acr-push-{CALLER.object_id}": ("AcrPush", account),
        f"t-operator-acr-writer-{CALLER.object_id}": ("Container Registry Repository Writer", account),
        "t-guard-look": ("Reader", "cloudrec-t"),
        "t-guard-join": ("Virtual Machine Contributor", "cloudrec-t-nodes"),
        f"t-operator-cluster-{CALLER.object_id}": (
            "Azure Kubernetes Service RBAC Cluster Admin",
            "cloudrec-t",
        ),
    }


def test_role_assignments_are_deleted_before_their_principals_and_scopes() -> None:
    there = described(layout())
    assert set(there["role-assignment/t-cluster-network"].needs) == {"identity/t-cluster", "subnet/t-nodes"}
    assert set(there["role-assignment/t-pod-storage"].needs) == {"identity/t-pod", "container/t"}
    assert there[f"role-assignment/t-operator-cluster-{CALLER.object_id}"].needs == ("cluster/t",)


def test_admins_are_users_unless_another_type_is_given() -> None:
    user, group = "00000000-0000-0000-0000-0000000000AA", "00000000-0000-0000-0000-0000000000bb"
    there = described(layout(admins=[user, f"group:{group}"]))
    wanted = {key: each.properties.requested() for key, each in there.items() if "-admin-" in key}
    kinds = {key[-2:]: one["principal_type"] for key, one in wanted.items()}
    assert kinds == {"aa": "User", "bb": "Group"}


def test_a_role_assignment_has_its_owner_in_the_description() -> None:
    assert identity.tags_of("cloudrec:t:role-assignment/t-x:me:and:you") == {
        "cloudrec-cluster": "t",
        "cloudrec-key": "role-assignment/t-x",
        "cloudrec-owner": "me:and:you",
    }
    assert identity.tags_of("somebody's") == identity.tags_of("") == {}


def test_names_fit_the_azure_limits_and_differ_by_subscription_and_cluster() -> None:
    short, long = layout(), layout(name="x" * 40)
    for of in (short, long):
        assert len(of.storage_account) == 24
        assert of.storage_account.isalnum()
    assert short.storage_account != long.storage_account
    assert len(long.node_group) <= 80
    assert layout(storage_account="mine", container="c1x").storage == "abfs://c1x@mine.dfs.core.windows.net"


def test_the_file_system_waits_for_the_gpus_if_several_zones_are_possible() -> None:
    assert "gpu-nodes/t" in described(layout(lustre_tib=8))["lustre/t"].needs
    alone = described(layout(lustre_tib=8, zones=("2",)))["lustre/t"]
    assert "gpu-nodes/t" not in alone.needs
    assert alone.properties.requested()["zone"] == "2"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vnet_cidr": "10.42.0.0/24"}, "is a /24; /8 to /22"),
        ({"vnet_cidr": "8.8.0.0/16"}, "not a private block"),
        ({"pod_cidr": "10.42.128.0/17"}, r"pod_cidr 10\.42\.128\.0/17 and vnet_cidr .* overlap"),
        ({"lustre_tib": 10}, r"steps of 8 TiB: choose 16, whose price"),
        ({"lustre_tib": 8, "lustre_sku": "AMLFS-Durable-Premium-40"}, "steps of 48 TiB: choose 48"),
        ({"admins": ["unknown"]}, "'unknown'; an admin is the object id"),
        ({"storage_account": "Not-One"}, "storage_account"),
        ({"capacity_reservation_group": "mine"}, "capacity_reservation_group"),
        ({"subnets": 3}, "subnets"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_invalid_settings_are_reported_before_any_change(settings: dict[str, object], words: str) -> None:
    with pytest.raises(SpecError, match=words):
        settings_of(ClusterSpec(name="t", provider="azure", settings=settings))
