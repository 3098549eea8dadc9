"""The real agent on a node that lacks one part of its fabric ends with 69, and names the part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.agent.checks import hardware
from cloudrec.transport import profile_of, profiles
from cloudrec.transport.table import machines_of
from cloudrec_contract.exit_codes import UNFIT_NODE
from tests.e2e.support_nodes import Node, run_agent, why_not
from tests.unit.agent.support_fabrics import DIRECT, GUEST, KITS, NO_PLUGIN, OPTMEM, SOCKET, Kit

pytestmark = pytest.mark.skipif(bool(why_not()), reason=str(why_not()))
GIB_CONFIGS = "usr/local/gib/configs"
KERNELS_DEFAULT = 8 * 2**20
OLD_NCCL = {"infiniband": "2.12.12", "tcpx": "2.18.6", "efa": "2.16.2", "tcpxo": "2.29.7", "rdma": "2.27.5"}
NO_VERBS = "NCCL INFO NET/IB : No device found."


def _disabled(node: Node, *cards: int) -> Node:
    kit, log = node.kit, list(node.log)
    for card in cards:
        log[card + 1] = DIRECT.format(net=kit.net, state="Disabled", card=card, name=kit.cards[card])
    return node.but(log=tuple(log))


def _without_peermem(node: Node) -> Node:
    """Without nvidia_peermem or DMA-BUF; a fabric whose check does not see the modules sees their effect."""
    if node.kit.fabric == "infiniband":
        return node.without("sys/module/nvidia_peermem")
    return _disabled(node, *range(len(node.kit.cards)))


def _without_plugin(node: Node) -> Node:
    return node.but(log=(NO_VERBS if node.kit.fabric == "infiniband" else NO_PLUGIN, SOCKET))


def _without_topology(node: Node) -> Node:
    """Without what describes the machine type to NCCL: a topology file, or files of the plug-in for it."""
    fabric = node.kit.fabric
    if fabric == "efa":  # the plug-in has named it
        name = "/opt/amazon/ofi-nccl/share/aws-ofi-nccl/xml/p4d-24xl-topo.xml"
        unread = f"NCCL INFO Could not open XML topology file {name} : No such file or directory"
        return node.but(log=(*node.log, unread))
    return node.without({"infiniband": "opt/microsoft/*.xml", "tcpxo": GUEST}.get(fabric, f"{GIB_CONFIGS}/*"))


def _without_memlock(node: Node) -> Node:
    """Without memory that may be locked; for TCPX, without what its sockets need in its place."""
    if node.kit.fabric == "tcpx":
        (node.root / OPTMEM).write_text("20480\n")
        return node
    return node.but(memlock=KERNELS_DEFAULT, may_lock=False)


def _without_a_card(node: Node) -> Node:
    pattern = profile_of(node.kit.fabric, node.kit.machine).expects.cards
    card = Path(hardware.matches(node.root, pattern)[-1])
    return node.without(str(card.relative_to(node.root)))


# Each part: what takes it away, and the words that name it.
PARTS: Mapping[str, tuple[Callable[[Node], Node], str]] = {
    "driver": (lambda node: node.without("dev/nvidia[0-9]*"), "NVIDIA's driver is not loaded"),
    "peermem or DMA-BUF": (_without_peermem, "nvidia_peermem is not loaded|no GPUDirect RDMA"),
    "plug-in": (_without_plugin, "did not load the plug-in|NCCL chose 'NCCL INFO NET/Socket"),
    "topology file": (
        _without_topology,
        "no topology file|guest configuration of the machine type|no /usr/local/gib/configs/tuner_config",
    ),
    "GPUDirect": (lambda node: _disabled(node, 1), "no GPUDirect RDMA"),
    "a card": (_without_a_card, "cards"),
    "NCCL's version": (
        lambda node: node.but(nccl=OLD_NCCL[node.kit.fabric]),
        "the plug-in|this fabric needs",
    ),
    "memlock": (_without_memlock, "may be locked in memory|optmem_max"),
}
# Parts that a fabric does not have, with the reason.
WITHOUT: Mapping[tuple[str, str], str] = {
    ("tcpx", "topology file"): "the daemon has the machine's preset (`--gpu_nic_preset a3vm`) built in",
    ("tcpxo", "memlock"): "the daemon, which is root, locks the memory; its sockets need no more than others",
}
CASES = [(fabric, part) for fabric in KITS for part in PARTS if (fabric, part) not in WITHOUT]


@pytest.mark.parametrize("fabric", KITS)
def test_the_agent_starts_torchrun_on_a_whole_node(fabric: str, tmp_path: Path) -> None:
    ended = run_agent(Node.whole(fabric, tmp_path), tmp_path)
    assert ended.code != UNFIT_NODE, ended.words
    assert "torchrun ended with" in ended.words  # the made torch has no torchrun


@pytest.mark.parametrize(("fabric", "part"), CASES)
def test_a_node_without_a_part_ends_with_69_and_its_name(fabric: str, part: str, tmp_path: Path) -> None:
    take, names = PARTS[part]
    ended = run_agent(take(Node.whole(fabric, tmp_path)), tmp_path)
    assert ended.code == UNFIT_NODE, ended.words
    assert any(name in ended.words for name in names.split("|")), ended.words


def test_each_part_is_taken_away_on_each_fabric_that_has_it() -> None:
    rows = [
        " | ".join([part, *("-" if (fabric, part) in WITHOUT else "69" for fabric in KITS)]) for part in PARTS
    ]
    print("\n".join([" | ".join(["part", *KITS]), *rows]))
    assert len(PARTS) == 8
    assert len(CASES) == len(PARTS) * len(KITS) - len(WITHOUT)


def _kits() -> list[Kit]:
    """A machine of each profile of a fabric."""
    found = []
    for profile in profiles():
        machines = machines_of(profile.name)
        fitting = [kit for kit in KITS.values() if kit.fabric == profile.fabric]
        if not fitting or not machines:
            continue
        known = next((kit for kit in fitting if kit.machine in machines), fitting[0])
        cards = tuple(known.cards[0][:-2] + f"{n}s0" for n in range(profile.cards or len(known.cards)))
        same = profile.fabric != "efa"
        found.append(replace(known, machine=machines[0], cards=known.cards if same else cards))
    return found


@pytest.mark.parametrize("kit", _kits(), ids=lambda kit: kit.machine)
def test_no_profile_of_a_fabric_passes_on_plain_sockets(kit: Kit, tmp_path: Path) -> None:
    node = Node.of(kit, tmp_path)
    ended = run_agent(node.but(log=(NO_PLUGIN, SOCKET)), tmp_path)
    assert ended.code == UNFIT_NODE, ended.words
    assert "NET/Socket" in ended.words
