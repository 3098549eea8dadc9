"""Several nodes of a machine without a transport profile are refused before anything is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.providers.aws import offers as aws
from cloudrec.providers.azure import offers as azure
from cloudrec.providers.base.access import cluster_target
from cloudrec.providers.base.hardware.fabrics import findings
from cloudrec.providers.base.offers import InstanceType
from cloudrec.providers.gcp import offers as gcp
from cloudrec.spec.models import ClusterSpec

_NAME = "a9-ultragpu-8g"
UNNAMED = replace(gcp.KNOWN["a3-ultragpu-8g"], instance_type=_NAME, gpu_fabric="falcon", profile="")
RDMA = {_NAME: UNNAMED}


def spec(**given: object) -> ClusterSpec:
    return ClusterSpec.model_validate(
        {"name": "t", "provider": "gcp", "owner": "tester", "nodes": 2, **given}
    )


def test_several_nodes_without_a_profile_are_refused_unless_tcp_is_allowed() -> None:
    (refused,) = findings(spec(), tuple(RDMA), RDMA)
    assert (refused.ok, refused.blocks) == (False, True)
    assert "a9-ultragpu-8g (falcon)" in refused.found
    assert "--allow-tcp" in refused.remedy
    (warned,) = findings(spec(allow_tcp=True), tuple(RDMA), RDMA)
    assert (warned.ok, warned.blocks) == (False, False)
    assert findings(spec(nodes=1), tuple(RDMA), RDMA) == []


def test_the_pods_of_nodes_that_were_allowed_without_their_fabric_expect_tcp() -> None:
    target = cluster_target(
        kubeconfig=Path("k"),
        context="c",
        account="ns/sa",
        fabric=UNNAMED.fabric,
        instance_type=UNNAMED.instance_type,
        gpus=8,
    )
    assert target.fabric == "tcp"


@pytest.mark.parametrize("known", [aws.KNOWN, azure.KNOWN, gcp.KNOWN], ids=["aws", "azure", "gcp"])
def test_exactly_the_machines_whose_row_names_a_profile_are_used_for_several_nodes(
    known: Mapping[str, InstanceType],
) -> None:
    unnamed = {each.check.removeprefix("fabric of ") for each in findings(spec(), tuple(known), known)}
    assert unnamed == {name for name, each in known.items() if not each.profile}
    assert not [name for name in unnamed if name.startswith(("p4", "p5", "p6", "Standard_ND", "a3-mega"))]
