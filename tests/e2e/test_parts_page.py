"""docs/node-checks.md has the table of parts by fabric; CLOUDREC_WRITE_GOLDEN=1 writes it again."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from scripts.site.text import bullet
from tests.e2e.test_parts_taken_away import PARTS, WITHOUT
from tests.unit.agent.support_fabrics import KITS

PAGE = Path(__file__).parents[2] / "docs" / "node-checks.md"
TITLES = {
    "efa": "EFA",
    "infiniband": "InfiniBand",
    "tcpx": "TCPX",
    "tcpxo": "TCPXO",
    "rdma-a3-ultra": "A3 Ultra",
    "rdma-a4": "A4",
}
# Parts that have another name on a fabric.
AS: Mapping[tuple[str, str], str] = {
    (
        "efa",
        "topology file",
    ): "the file that aws-ofi-nccl names for p4d and p4de, if NCCL cannot open it; for "
    "machines with several cards for each GPU the plug-in writes one, or does not start",
    ("infiniband", "topology file"): "the file of `NCCL_TOPO_FILE`",
    (
        "tcpxo",
        "topology file",
    ): "the guest and tuner configurations of A3 Mega, which the plug-in's script names",
    ("rdma-a3-ultra", "topology file"): "gIB's tuner configuration of the machine type",
    ("rdma-a4", "topology file"): "gIB's tuner configuration of the machine type",
    ("infiniband", "peermem or DMA-BUF"): "the kernel module, or the open driver with Linux 5.12; on the "
    "other fabrics its effect, since NCCL then reports no GPUDirect RDMA for any card",
    ("infiniband", "plug-in"): "NCCL's own transport over InfiniBand, which must find the cards",
    ("infiniband", "NCCL's version"): "2.13 or later, which registers memory by DMA-BUF",
    ("tcpx", "memlock"): "`net.core.optmem_max`, which the daemon's sockets need, where the pod can see it",
}
_BLOCK = re.compile(r"(<!-- parts: written by a test -->\n).*?(<!-- parts: end -->)", re.DOTALL)


def table() -> str:
    lines = [
        "",
        f"| Part | {' | '.join(TITLES[fabric] for fabric in KITS)} |",
        f"|{'---|' * (len(KITS) + 1)}",
        *(
            f"| {part} | {' | '.join('-' if (fabric, part) in WITHOUT else '69' for fabric in KITS)} |"
            for part in PARTS
        ),
        f"| of {len(PARTS)} | "
        + " | ".join(str(sum((fabric, part) not in WITHOUT for part in PARTS)) for fabric in KITS)
        + " |",
        "",
        "Parts that a fabric does not have:",
        "",
        *(bullet(f"{TITLES[fabric]}, {part}: {why}.").rstrip() for (fabric, part), why in WITHOUT.items()),
        "",
        "Parts that have another name there:",
        "",
        *(bullet(f"{TITLES[fabric]}, {part}: {what}.").rstrip() for (fabric, part), what in AS.items()),
        "",
    ]
    return "\n".join(lines) + "\n"


def test_the_page_has_the_parts_that_the_test_takes_away() -> None:
    text = PAGE.read_text(encoding="utf-8")
    written = _BLOCK.sub(lambda match: match[1] + table() + match[2], text)
    if os.environ.get("CLOUDREC_WRITE_GOLDEN"):
        PAGE.write_text(written, encoding="utf-8")
    assert text == written or os.environ.get("CLOUDREC_WRITE_GOLDEN")


def test_each_note_is_of_a_part_that_is_taken_away() -> None:
    assert not set(AS) & set(WITHOUT)
    assert {part for _, part in (*AS, *WITHOUT)} <= set(PARTS)
