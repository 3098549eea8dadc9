"""Each kind of changed request that only the node check finds: the real agent refuses the node it makes."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudrec_contract.exit_codes import UNFIT_NODE
from tests.contract.mutants.verdicts import Lack, table
from tests.e2e.support_mutants import NAMES, agent_on, kit_of
from tests.e2e.support_nodes import why_not

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
# The machine types for which each table's rules are tried: each fabric of the cloud, and one without any.
RDMA = ("a3-ultragpu-8g", "a4-highgpu-8g")
MACHINES = {
    "aws-nodegroup": ("aws", ("p5.48xlarge", "g6e.24xlarge", "g5.xlarge")),
    "aws-template": ("aws", ("p5.48xlarge", "p4d.24xlarge", "p6-b300.48xlarge", "g6e.24xlarge")),
    "azure-pool": ("azure", ("Standard_ND96isr_H100_v5", "Standard_NC24ads_A100_v4")),
    "gcp-pool": (
        "gcp",
        ("a3-highgpu-8g", "a3-megagpu-8g", "a3-ultragpu-8g", "a4-highgpu-8g", "g2-standard-48"),
    ),
}


def cases() -> list[tuple[str, str, Lack]]:
    """Cloud, machine and what its node lacks, for each rule that claims the node check."""
    found: list[tuple[str, str, Lack]] = []
    for name, (cloud, machines) in MACHINES.items():
        for rule in table(name).rules:
            for machine in machines if rule.lacks else ():
                has_cards = bool(kit_of(cloud, machine).cards)
                if rule.lacks in ("driver", "memlock") or has_cards:
                    found.append((cloud, machine, rule.lacks))
    return [each for each in dict.fromkeys(found) if each[2] != "interface" or each[1] in RDMA]


@pytest.mark.parametrize(("cloud", "machine"), sorted({each[:2] for each in cases()}))
def test_the_node_of_the_unchanged_request_is_fit(cloud: str, machine: str, tmp_path: Path) -> None:
    ended = agent_on(kit_of(cloud, machine), "", tmp_path)
    assert ended.code != UNFIT_NODE, ended.words
    assert "torchrun ended with" in ended.words


@pytest.mark.parametrize(("cloud", "machine", "lacks"), cases())
def test_the_node_of_a_changed_request_is_refused_by_name(
    cloud: str, machine: str, lacks: Lack, tmp_path: Path
) -> None:
    ended = agent_on(kit_of(cloud, machine), lacks, tmp_path)
    assert ended.code == UNFIT_NODE, ended.words
    assert any(name in ended.words for name in NAMES[lacks]), ended.words


def test_every_kind_of_the_rules_is_tried() -> None:
    rules = [rule for name in MACHINES for rule in table(name).rules if rule.lacks]
    assert {rule.lacks for rule in rules} == {lacks for *_, lacks in cases()} == NAMES.keys()
