"""Each identity of a cluster on Azure has roles that its flows use, and no others.

Azure's roles are wider than what is used of them: `WHY` has the reason for each. The identities and their
roles are read from the subscription, where `up` has written them; what the flows use is what the stand-in
recorded of the identity's requests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.azure.support import fresh
from tests.contract.azure.support_flows import FLOWS, Life, role_of, run
from tests.contract.azure.test_moved_end import BY_ORDER
from tests.contract.support_least import Found, Grant, unneeded
from tests.sandbox.azure.support import stand_in
from tests.tallies import Tally

_DOCS = "https://learn.microsoft.com/azure"
_ABAC = f"{_DOCS}/container-registry/container-registry-rbac-abac-repository-permissions"
_BUILT_IN = f"{_DOCS}/role-based-access-control/built-in-roles"
# Why a role is not smaller: Azure has no built-in one with what the flows use of it.
WHY = {
    "AcrPull": f"{_DOCS}/aks/cluster-container-registry-integration",
    "Azure Kubernetes Service Contributor Role": f"{_BUILT_IN}/containers: the smallest that changes a pool",
    "Container Registry Repository Reader": _ABAC,
    "Managed Identity Operator": f"{_DOCS}/aks/use-managed-identity#add-role-assignment",
    "Network Contributor": f"{_DOCS}/aks/configure-azure-cni#prerequisites",
    "Reader": f"{_BUILT_IN}/general: the smallest that reads one resource",
    "Storage Blob Data Contributor": f"{_BUILT_IN}/storage: the smallest that writes and deletes blobs",
    "Tag Contributor": f"{_BUILT_IN}/management-and-governance: it changes tags alone",
    "Virtual Machine Contributor": f"{_BUILT_IN}/compute: the smallest that joins a subnet",
}
# AKS assigns this by itself, in the group of the nodes ("Use a managed identity in AKS").
OF_AKS = {("cluster", "Contributor")}
# No kubelet pulls an image from the stand-in's registry.
NOT_RUN = {("kubelet", "AcrPull"), ("kubelet", "Container Registry Repository Reader")}
IDENTITIES = (*FLOWS, "kubelet")


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    with stand_in() as azure:
        fresh(azure)
        azure.control(**BY_ORDER)
        yield Life(azure, tmp_path_factory.mktemp("life"))


def ours(life: Life, name: str) -> list[Grant]:
    return sorted(each for each in life.assignments(name) if (name, each.action) not in OF_AKS)


def names_a_use(grant: Grant, found: Found) -> bool:
    """Whether an action of the grant's role was refused."""
    role = role_of(grant)
    return any(role.allows(each) or role.allows(each, data=True) for each in found.refused)


def test_the_identities_are_those_of_the_cluster(life: Life) -> None:
    rows = life.site.sdk.managedidentity.user_assigned_identities.list_by_subscription()
    assert {str(row.name).rpartition("-")[2] for row in rows} == set(IDENTITIES)


@pytest.mark.parametrize("name", FLOWS)
def test_an_identity_has_roles_that_its_flows_use(
    life: Life, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    held = ours(life, name)
    found = run(life, name, tmp_path_factory.mktemp(name))
    assert (found.said, found.refused) == ("", frozenset())
    allowed = {
        str(each): {
            used for used in found.used if role_of(each).allows(used) or role_of(each).allows(used, data=True)
        }
        for each in held
    }
    assert [each for each, uses in allowed.items() if not uses] == []
    assert found.used == set().union(*allowed.values())


def test_each_role_has_a_reason_for_its_size(life: Life) -> None:
    held = {(name, each.action) for name in IDENTITIES for each in ours(life, name)}
    assert {role for _, role in held} == WHY.keys()
    assert {(name, role) for name, role in held if name not in FLOWS} == NOT_RUN


@pytest.mark.parametrize("name", FLOWS)
def test_each_role_of_an_identity_is_needed(
    life: Life, tmp_path_factory: pytest.TempPathFactory, name: str, tally: Tally
) -> None:
    held = ours(life, name)
    folder = tmp_path_factory.mktemp(name)
    assert unneeded(held, lambda grant: run(life, name, folder, without=grant), names_a_use) == []
    tally(f"each of {len(held)} roles of Azure's identity {name} is needed")
