"""What a pod needs on a GPU node."""

from __future__ import annotations

from cloudrec.providers.azure.access import pod_resources, tolerations
from cloudrec.providers.azure.offers import KNOWN


def test_a_pod_has_all_gpus_and_all_cards_of_the_fabric() -> None:
    assert pod_resources(KNOWN["Standard_ND96isr_H100_v5"]) == {"nvidia.com/gpu": "8", "rdma/ib": "8"}
    assert pod_resources(KNOWN["Standard_NC64as_T4_v3"]) == {"nvidia.com/gpu": "4"}


def test_a_pod_puts_up_with_the_taints_of_its_market() -> None:
    gpu = {"key": "nvidia.com/gpu", "operator": "Equal", "value": "present", "effect": "NoSchedule"}
    spot = {
        "key": "kubernetes.azure.com/scalesetpriority",
        "operator": "Equal",
        "value": "spot",
        "effect": "NoSchedule",
    }
    assert tolerations("on-demand") == [gpu]
    assert tolerations("spot") == [gpu, spot]
