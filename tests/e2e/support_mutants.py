"""The node that a changed request for a machine would make, and the real agent on it."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.agent.checks import hardware
from cloudrec.transport import profile_of, profiles
from cloudrec.transport.table import machines_of
from cloudrec_contract.exit_codes import UNFIT_NODE
from tests.e2e.support_nodes import Node, run_agent
from tests.unit.agent.support_fabrics import KITS, SOCKET, Kit

if TYPE_CHECKING:
    from tests.contract.mutants.verdicts import Lack
    from tests.e2e.support_nodes import Ended

_KERNELS_DEFAULT = 8 * 2**20  # bytes that a process may lock without an arrangement
_PLAIN = Kit(fabric="tcp", machine="", cards=(), device="", line=SOCKET, net="Socket", nccl="2.29.7")
# Words by which the agent names what is missing.
NAMES = {
    "driver": ("NVIDIA's driver is not loaded",),
    "every-card": ("cards",),
    "one-card": ("cards",),
    "interface": ("eth1",),
    "memlock": ("may be locked in memory",),
}


def kit_of(cloud: str, machine: str) -> Kit:
    """Return what a whole node of a machine type shows; LookupError if its fabric has no made node."""
    row = importlib.import_module(f"cloudrec.providers.{cloud}.offers").KNOWN[machine]
    gpus, cards = row.gpus, row.cards or 0
    profile = next((each for each in profiles() if machine in machines_of(each.name)), None)
    if profile is None or profile.fabric == "tcp":
        return replace(_PLAIN, machine=machine, gpus=gpus)
    fitting = [kit for kit in KITS.values() if kit.fabric == profile.fabric]
    if not fitting:
        raise LookupError(f"there is no made node for the fabric {profile.fabric} of {machine}")
    known = next((kit for kit in fitting if kit.machine == machine), fitting[0])
    names = known.cards
    if cards and len(names) != cards:
        names = tuple(names[0].replace("0", str(number), 1) for number in range(cards))
    return replace(known, machine=machine, gpus=gpus, cards=names)


def agent_on(kit: Kit, lacks: Lack, folder: Path) -> Ended:
    """Run the agent on a machine's node that lacks something; empty for a whole node."""
    return run_agent(_without(Node.of(kit, folder), lacks), folder)


def _without(node: Node, lacks: Lack) -> Node:
    if lacks == "driver":
        return node.without("dev/nvidia[0-9]*")
    if lacks == "memlock":
        return node.but(memlock=_KERNELS_DEFAULT, may_lock=False)
    if lacks == "interface":
        return node.without("sys/class/net/eth1")
    if lacks in ("one-card", "every-card"):
        pattern = profile_of(node.kit.fabric, node.kit.machine).expects.cards
        found = [Path(each) for each in hardware.matches(node.root, pattern)]
        for card in found if lacks == "every-card" else found[-1:]:
            node = node.without(str(card.relative_to(node.root)))
        return node.but(log=(SOCKET,) if lacks == "every-card" else node.log[:-1])
    return node


def refused(cloud: str, states: Iterable[tuple[str, Lack]]) -> set[tuple[str, str]]:
    """Return the machine types and what their nodes lack, where the real agent refuses such a node by name.

    Args:
        cloud: the cloud of the machine types.
        states: machine types, and what their nodes lack.
    """
    found: set[tuple[str, str]] = set()
    for machine, lacks in states:
        try:
            kit = kit_of(cloud, machine)
        except LookupError:
            continue  # it stays a claim
        with tempfile.TemporaryDirectory() as folder:
            ended = agent_on(kit, lacks, Path(folder))
        if ended.code == UNFIT_NODE and any(name in ended.words for name in NAMES[lacks]):
            found.add((machine, lacks))
    return found
