"""The resources and tolerations of a pod on a GPU node."""

from __future__ import annotations

import pytest

from cloudrec.providers.azure.access import tolerations
from cloudrec.providers.azure.offers import KNOWN
from cloudrec.transport import profile_of, profiles


def test_a_pod_has_all_gpus_and_all_adapters_of_the_fabric() -> None:
    fast = profile_of("infiniband", "Standard_ND96isr_H100_v5")
    assert fast.pod_resources(8) == {"nvidia.com/gpu": "8", "rdma/ib": "8"}
    assert profile_of("tcp", "Standard_NC64as_T4_v3").pod_resources(4) == {"nvidia.com/gpu": "4"}


PROFILES = {each.name: each for each in profiles()}


@pytest.mark.parametrize("size", [name for name, each in KNOWN.items() if each.profile])
def test_every_size_names_a_profile_of_its_fabric_with_the_number_of_its_cards(size: str) -> None:
    found = PROFILES[KNOWN[size].profile]
    assert (found.fabric, found.cards) == (KNOWN[size].fabric, KNOWN[size].cards)
    assert found == profile_of(KNOWN[size].fabric, size)


@pytest.mark.parametrize("size", [name for name, each in KNOWN.items() if each.infiniband])
def test_every_size_with_infiniband_has_its_own_profile(size: str) -> None:
    assert profile_of("infiniband", size).name in {"azure-nd-v4", "azure-nd-v5"}
    assert profile_of("infiniband", size).cards == KNOWN[size].infiniband


def test_a_pod_tolerates_the_taints_of_its_market() -> None:
    gpu = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    spot = {
        "key": "kubernetes.azure.com/scalesetpriority",
        "operator": "Equal",
        "value": "spot",
        "effect": "NoSchedule",
    }
    assert tolerations("on-demand") == [gpu]
    assert tolerations("spot") == [gpu, spot]
