"""The ephemeral storage of EKS's nodes follows their NodeConfig."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from cloudrec_sandbox.aws.services.eks.node_groups import disks

EIGHT = {"InstanceStorageInfo": {"TotalSizeInGB": 8000}}
ROOT: dict[str, Any] = {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 200}}]}


def template(storage: dict[str, Any] | None, gates: dict[str, Any] | None = None) -> dict[str, Any]:
    if storage is None:
        return ROOT
    spec = {"instance": {"localStorage": storage}, **({"featureGates": gates} if gates else {})}
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig"}
    text = json.dumps({**config, "spec": spec})
    lines = ["MIME-Version: 1.0", 'Content-Type: multipart/mixed; boundary="X"', "", "--X"]
    lines += ["Content-Type: application/node.eks.aws", "", text, "--X--", ""]
    return {**ROOT, "UserData": base64.b64encode("\n".join(lines).encode()).decode()}


@pytest.mark.parametrize(
    ("storage", "kind", "gib"),
    [
        ({"strategy": "RAID0"}, EIGHT, 6704),
        ({"strategy": "RAID10"}, EIGHT, 3351),
        ({"strategy": "Mount"}, EIGHT, 179),
        (None, EIGHT, 179),
        ({"strategy": "RAID0"}, {}, 179),  # a type without instance store
    ],
)
def test_only_an_array_is_the_ephemeral_storage(
    storage: dict[str, Any] | None, kind: dict[str, Any], gib: int
) -> None:
    assert disks.ephemeral_gib({}, template(storage), kind) == gib


def test_a_group_without_a_disk_size_has_20_gib() -> None:
    assert disks.ephemeral_gib({}, {}, {}) == 17
    assert disks.ephemeral_gib({"diskSize": 100}, {}, {}) == 89


@pytest.mark.parametrize(
    ("storage", "refused"),
    [
        ({"strategy": "RAID0"}, ""),
        ({"strategy": "Raid0"}, "Unsupported value: 'Raid0'"),
        ({"strategy": "RAID0", "disabledMounts": ["Kubelet"]}, "Unsupported value: 'Kubelet'"),
    ],
)
def test_nodeadm_refuses_other_values(storage: dict[str, Any], refused: str) -> None:
    assert refused in disks.problem(template(storage))
    assert bool(refused) == bool(disks.problem(template(storage)))


@pytest.mark.parametrize(
    ("gates", "refused"),
    [
        ({"FastImagePull": True}, ""),
        ({"InstanceIdNodeName": False, "FastImagePull": False}, ""),
        ({"FastContainerImagePull": True}, "Unsupported value: 'FastContainerImagePull'"),
        ({"FastImagePull": "yes"}, "must be a boolean"),
    ],
)
def test_nodeadm_knows_two_feature_gates(gates: dict[str, Any], refused: str) -> None:
    problem = disks.problem(template({"strategy": "RAID0"}, gates))
    assert refused in problem
    assert bool(refused) == bool(problem)
