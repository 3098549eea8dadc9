"""Each part of a fabric that is missing is named by the check of a node, on every fabric."""

from __future__ import annotations

import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.agent.checks import hardware
from cloudrec.agent.checks.node import Nccl, examine
from cloudrec.transport import profile_of
from tests.unit.agent.support_fabrics import DIRECT, KITS, NO_PLUGIN, OPTMEM, PEERMEM, SOCKET, Kit
from tests.unit.agent.support_pod import write

EVERY = pytest.mark.parametrize("kit", KITS.values(), ids=KITS)


def problems(kit: Kit, root: Path, nccl: Nccl | None = None) -> list[str]:
    profile = replace(profile_of(kit.fabric, kit.machine), shm_gib=0)  # a made folder's size is its disk's
    answer = kit.answer() if nccl is None else nccl
    return list(examine(profile, kit.settings, profile.environment, answer, root=root).problems)


@EVERY
def test_a_whole_node_is_fit(kit: Kit, tmp_path: Path) -> None:
    assert problems(kit, kit.node(tmp_path)) == []


@EVERY
def test_a_node_without_the_driver_of_its_gpus_is_named(kit: Kit, tmp_path: Path) -> None:
    root = kit.node(tmp_path)
    for each in root.glob("dev/nvidia[0-9]*"):
        each.unlink()
    assert any("NVIDIA's driver is not loaded" in each for each in problems(kit, root))


@EVERY
def test_a_missing_card_is_named(kit: Kit, tmp_path: Path) -> None:
    root = kit.node(tmp_path)
    pattern = profile_of(kit.fabric, kit.machine).expects.cards
    card = Path(hardware.matches(root, pattern)[-1])
    if card.is_dir():
        shutil.rmtree(card)
    else:
        card.unlink()
    whole = len(kit.cards)
    assert f"{whole - 1} cards ({pattern}) of {whole}" in problems(kit, root)


@EVERY
def test_gpudirect_that_nccl_reports_as_disabled_is_named_with_its_card(kit: Kit, tmp_path: Path) -> None:
    root = kit.node(tmp_path)
    off = DIRECT.format(net=kit.net, state="Disabled", card=1, name=kit.cards[1])
    log = (*kit.log()[:2], off, *kit.log()[3:])
    assert problems(kit, root, replace(kit.answer(), log=log)) == [
        f"no GPUDirect RDMA: NCCL reports it as disabled for {kit.cards[1]}, so data passes the CPU's memory"
    ]
    silent = replace(kit.answer(), log=kit.log()[:1])
    assert any("NCCL does not report it" in each for each in problems(kit, root, silent))


@EVERY
def test_nccl_over_plain_sockets_is_never_fit(kit: Kit, tmp_path: Path) -> None:
    found = problems(kit, kit.node(tmp_path), replace(kit.answer(), log=(NO_PLUGIN, SOCKET)))
    assert any("NET/Socket" in each for each in found)


@pytest.mark.parametrize(
    "kit", [each for each in KITS.values() if each.fabric != "infiniband"], ids=lambda kit: kit.machine
)
def test_a_missing_plug_in_is_named(kit: Kit, tmp_path: Path) -> None:
    name = profile_of(kit.fabric, kit.machine).expects.plugin
    (found,) = problems(kit, kit.node(tmp_path), replace(kit.answer(), log=(NO_PLUGIN, SOCKET)))
    assert f"NCCL did not load the plug-in {name}" in found


@pytest.mark.parametrize(
    ("kit", "version", "needs"),
    [
        (KITS["efa"], "2.16.2", ">=2.17.1"),
        (KITS["tcpxo"], "2.29.7", "==2.28.7"),
        (KITS["tcpx"], "2.18.6", ">=2.19.3"),
        (KITS["rdma-a3-ultra"], "2.27.5", ">=2.28.7,<=2.30.4"),
        (KITS["rdma-a4"], "2.31.2", ">=2.28.7,<=2.30.4"),
    ],
)
def test_an_nccl_that_does_not_fit_the_plug_in_is_named(
    kit: Kit, version: str, needs: str, tmp_path: Path
) -> None:
    (found,) = problems(kit, kit.node(tmp_path), replace(kit.answer(), version=version))
    assert found.startswith(f"NCCL {version}; the plug-in ")
    assert found.endswith(f" needs {needs}")


def test_an_a2_node_must_use_fast_socket_and_not_any_socket(tmp_path: Path) -> None:
    kit = Kit(
        fabric="tcp",
        machine="a2-highgpu-8g",
        cards=(),
        device="",
        line="NCCL INFO NET/FastSocket : Using [0]eth0:10.0.0.6<0>",
        net="FastSocket",
        nccl="2.29.7",
    )
    root = kit.node(tmp_path)
    assert problems(kit, root) == []
    (plain,) = problems(kit, root, replace(kit.answer(), log=(SOCKET,)))
    assert "NET/Socket : Using" in plain
    (without,) = problems(kit, root, replace(kit.answer(), log=(NO_PLUGIN, SOCKET)))
    assert "NCCL did not load the plug-in Fast Socket" in without


def test_a_missing_topology_file_is_named(tmp_path: Path) -> None:
    kit = KITS["infiniband"]
    root = kit.node(tmp_path)
    (root / "opt/microsoft/ndv5-topo.xml").unlink()
    assert problems(kit, root) == ["no topology file /opt/microsoft/ndv5-topo.xml (NCCL_TOPO_FILE)"]


def test_a_topology_file_that_a_plug_in_names_and_nccl_cannot_open_is_named(tmp_path: Path) -> None:
    kit = KITS["efa"]
    unread = "NCCL INFO Could not open XML topology file /opt/p4d-24xl-topo.xml : No such file or directory"
    answer = replace(kit.answer(), log=(*kit.log(), unread))
    assert problems(kit, kit.node(tmp_path), answer) == [
        "no topology file /opt/p4d-24xl-topo.xml: NCCL cannot open it"
    ]


@pytest.mark.parametrize(("value", "words"), [("20480", ["20480 bytes"]), ("131072", []), ("", [])])
def test_too_little_memory_of_sockets_is_named_where_the_pod_can_see_it(
    value: str, words: list[str], tmp_path: Path
) -> None:
    kit = KITS["tcpx"]
    found = problems(kit, write(kit.node(tmp_path), {OPTMEM: value}))
    assert [each.partition(" of ")[0] for each in found] == words


def test_cards_that_cannot_read_gpu_memory_are_named(tmp_path: Path) -> None:
    kit = KITS["infiniband"]
    root = kit.node(tmp_path)
    (root / PEERMEM).unlink()
    (root / PEERMEM).parent.rmdir()
    (found,) = problems(kit, root)
    assert "nvidia_peermem is not loaded, and there is no DMA-BUF" in found


@pytest.mark.parametrize(
    "kit", [KITS["rdma-a3-ultra"], KITS["rdma-a4"], KITS["tcpxo"]], ids=lambda kit: kit.machine
)
def test_a_missing_file_of_the_plug_in_is_named(kit: Kit, tmp_path: Path) -> None:
    for name in [
        each for each in kit.files if f"/{each}" in profile_of(kit.fabric, kit.machine).expects.files
    ]:
        root = kit.node(tmp_path / Path(name).name)
        (root / name).unlink()
        assert problems(kit, root) == [f"no /{name}"]


@pytest.mark.parametrize("kit", [KITS["rdma-a3-ultra"], KITS["rdma-a4"]], ids=lambda kit: kit.machine)
def test_an_rdma_port_that_is_down_is_named(kit: Kit, tmp_path: Path) -> None:
    root = write(kit.node(tmp_path), {"sys/class/infiniband/mlx5_3/ports/1/state": "1: DOWN\n"})
    assert problems(kit, root) == ["the card mlx5_3/1 is not active"]


@pytest.mark.parametrize("fabric", ["efa", "infiniband", "rdma-a3-ultra"])
def test_too_little_lockable_memory_is_named(
    fabric: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = KITS[fabric]
    root = write(kit.node(tmp_path), {"proc/self/status": "CapEff:\t0000000000000000\n"})
    kernels_default = 8 * 2**20
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (kernels_default, kernels_default))
    (found,) = problems(kit, root)
    assert found.startswith("8388608 bytes may be locked in memory (memlock), of ")
