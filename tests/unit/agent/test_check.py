"""The check of a node before training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.agent.checks.node import Nccl, assert_fit, examine
from cloudrec.agent.settings import PodSettings
from cloudrec.errors import PreflightError
from cloudrec.transport import Expected, Profile, profile_of
from tests.unit.agent.support_pod import write

P5 = PodSettings(fabric="efa", instance_type="p5.48xlarge", gpus=8, node="ip-10-0-0-1")
GOOD_LOG = (
    "ip-10:7:7 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
    "ip-10:7:7 [0] NCCL INFO NET/AWS Libfabric : GPU Direct RDMA Enabled for HCA 0 'rdmap79s0'",
)
SOCKET_LOG = ("ip-10:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>",)
ND = PodSettings(fabric="infiniband", instance_type="Standard_ND96isr_H100_v5", gpus=8)
IB_LOG = (
    "NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
    "NCCL INFO NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
)
GOOD = Nccl(gpus=8, built_for_cuda=True, log=GOOD_LOG)
IB = Nccl(gpus=8, built_for_cuda=True, log=IB_LOG)
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.172.08  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.172.08  Tue Jul  8 18:33:51 UTC 2025\n"


def _node(root: Path, *, gpus: int = 8, cards: int = 32, mtu: int = 9001, pages: int = 5128) -> Path:
    files = {f"dev/nvidia{n}": "" for n in range(gpus)}
    files |= {f"dev/infiniband/uverbs{n}": "" for n in range(cards)}
    files |= {f"sys/class/infiniband/rdmap{n}/ports/1/state": "4: ACTIVE\n" for n in range(cards)}
    files |= {f"sys/class/infiniband/rdmap{n}/ports/1/link_layer": "Unspecified\n" for n in range(cards)}
    files["sys/class/net/eth0/mtu"] = f"{mtu}\n"
    files["sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"] = f"{pages}\n"
    files["proc/self/status"] = "CapEff:\t0000000000004000\n"  # IPC_LOCK alone
    return write(root, files)


def _nd(root: Path, *, ports: int = 8) -> Path:
    links = {f"sys/class/infiniband/rdmap{n}/ports/1/link_layer": "InfiniBand\n" for n in range(ports)}
    return write(_node(root, cards=8), {**links, "opt/microsoft/ndv5-topo.xml": ""})


def _profile(profile: Profile) -> Profile:
    return replace(profile, shm_gib=0)  # the size of a made folder is that of its disk


def _problems(root: Path, nccl: Nccl = GOOD, settings: PodSettings = P5, **environment: str) -> list[str]:
    profile = _profile(profile_of(settings.fabric, settings.instance_type))
    variables = {**profile.environment, **environment}
    return list(examine(profile, settings, variables, nccl, root=root).problems)


def test_a_complete_node_passes_the_check(tmp_path: Path) -> None:
    assert _problems(_node(tmp_path)) == []


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        ({"gpus": 7}, "7 GPUs (/dev/nvidia*) of 8"),
        ({"cards": 31}, "31 cards (/dev/infiniband/uverbs*) of 32"),
        ({"mtu": 1450}, "MTU 1450 of eth0, below 1500"),
        ({"pages": 12}, "12 free huge pages of 2 MiB, of 2560"),
    ],
)
def test_missing_devices_are_reported_with_the_expected_number(
    tmp_path: Path, node: dict[str, int], problem: str
) -> None:
    assert _problems(_node(tmp_path, **node)) == [problem]


@pytest.mark.parametrize(
    ("machine", "cards"), [("p5e.48xlarge", 32), ("p6-b200.48xlarge", 8), ("p6-b300.48xlarge", 16)]
)
def test_half_of_a_fabric_is_reported_for_each_machine(tmp_path: Path, machine: str, cards: int) -> None:
    settings = replace(P5, instance_type=machine, cards=cards)
    assert _problems(_node(tmp_path / "whole", cards=cards), settings=settings) == []
    assert _problems(_node(tmp_path / "half", cards=cards // 2), settings=settings) == [
        f"{cards // 2} cards (/dev/infiniband/uverbs*) of {cards}"
    ]


def test_a_machine_with_one_gpu_and_one_card_is_not_asked_for_32_cards(tmp_path: Path) -> None:
    settings = PodSettings(fabric="efa", instance_type="p5.4xlarge", gpus=1, cards=1)
    one = replace(GOOD, gpus=1)
    assert _problems(_node(tmp_path, gpus=1, cards=1, pages=0), one, settings) == []


def test_the_huge_pages_that_a_pod_requests_are_required_of_its_node(tmp_path: Path) -> None:
    small = PodSettings.from_environment(
        {
            "CLOUDREC_FABRIC": "efa",
            "CLOUDREC_INSTANCE_TYPE": "p5.4xlarge",
            "CLOUDREC_GPUS": "1",
            "CLOUDREC_CARDS": "1",
            "CLOUDREC_HUGEPAGES_MIB": "1760",
        }
    )
    one = replace(GOOD, gpus=1)
    assert _problems(_node(tmp_path / "enough", gpus=1, cards=1, pages=880), one, small) == []
    assert _problems(_node(tmp_path / "few", gpus=1, cards=1, pages=879), one, small) == [
        "879 free huge pages of 2 MiB, of 880"
    ]


def test_the_number_of_cards_is_that_of_the_machine_and_not_of_its_profile(tmp_path: Path) -> None:
    unknown = replace(P5, instance_type="p9.48xlarge", cards=16)
    assert _problems(_node(tmp_path, cards=15), settings=unknown) == [
        "15 cards (/dev/infiniband/uverbs*) of 16"
    ]


def test_a_network_adapter_that_is_down_is_named(tmp_path: Path) -> None:
    root = write(_node(tmp_path), {"sys/class/infiniband/rdmap3/ports/1/state": "1: DOWN\n"})
    assert _problems(root) == ["the card rdmap3/1 is not active"]


def test_an_nccl_fallback_to_sockets_is_a_problem(tmp_path: Path) -> None:
    (problem,) = _problems(_node(tmp_path), replace(GOOD, log=SOCKET_LOG))
    assert "NET/Socket : Using [0]eth0" in problem
    assert "its log should match 'Selected [Pp]rovider is efa'" in problem


@pytest.mark.parametrize(
    ("nccl", "words"),
    [
        (Nccl(gpus=-1), "torch is not installed in this image"),
        (Nccl(gpus=0), "built without CUDA: it would train on the CPU"),
        (Nccl(gpus=6, built_for_cuda=True, log=GOOD_LOG), "torch sees 6 GPUs of 8"),
        (Nccl(error="torch did not start"), "NCCL: torch did not start"),
    ],
)
def test_gpus_unusable_by_torch_are_a_problem(tmp_path: Path, nccl: Nccl, words: str) -> None:
    assert any(words in problem for problem in _problems(_node(tmp_path), nccl))


def test_infiniband_needs_active_ports_with_an_infiniband_link_layer(tmp_path: Path) -> None:
    root = write(_nd(tmp_path, ports=7), {"sys/module/nvidia_peermem/refcnt": "0"})
    assert _problems(root, IB, ND) == ["7 active InfiniBand ports of 8"]


KERNELS = {"new": "6.8.0-1041-azure\n", "old": "5.4.0-1089-azure\n"}


@pytest.mark.parametrize(
    "files",
    [
        {"sys/module/nvidia_peermem/refcnt": "0"},
        {"proc/modules": "nvidia_peermem 20480 0 - Live 0x0\n"},
        {"proc/driver/nvidia/version": OPEN, "proc/sys/kernel/osrelease": KERNELS["new"]},
    ],
)
def test_infiniband_cards_reach_gpu_memory_by_peermem_or_dma_buf(
    tmp_path: Path, files: dict[str, str]
) -> None:
    assert _problems(write(_nd(tmp_path), files), IB, ND) == []


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"proc/driver/nvidia/version": OPEN, "proc/sys/kernel/osrelease": KERNELS["old"]},
        {"proc/driver/nvidia/version": CLOSED, "proc/sys/kernel/osrelease": KERNELS["new"]},
    ],
)
def test_infiniband_cards_without_access_to_gpu_memory_are_a_problem(
    tmp_path: Path, files: dict[str, str]
) -> None:
    (problem,) = _problems(write(_nd(tmp_path), files), IB, ND)
    assert "nvidia_peermem is not loaded" in problem
    assert "no DMA-BUF" in problem


def test_a_locked_memory_limit_is_a_problem(tmp_path: Path) -> None:
    root = write(_node(tmp_path), {"proc/self/status": "CapEff:\t0000000000000000\n"})
    profile = Profile(name="x", fabric="tcp", shm_gib=0, expects=Expected(memlock=2**62))
    (problem,) = examine(profile, PodSettings(), {}, Nccl(), root=root).problems
    assert problem.endswith(f"bytes may be locked in memory (memlock), of {2**62} bytes")


def test_a_network_interface_named_by_the_user_must_exist(tmp_path: Path) -> None:
    root = _node(tmp_path)
    (root / "sys/class/net/eth0").rename(root / "sys/class/net/ens5")
    assert _problems(root) == ["no network interface eth0"]
    assert _problems(root, NCCL_SOCKET_IFNAME="ens5", GLOO_SOCKET_IFNAME="ens5") == []


def test_obsolete_settings_of_the_user_are_reported(tmp_path: Path) -> None:
    profile = _profile(profile_of("efa", "p5.48xlarge"))
    variables = {**profile.environment, "FI_EFA_USE_DEVICE_RDMA": "1"}
    (note,) = examine(profile, P5, variables, GOOD, root=_node(tmp_path)).notes
    assert note.startswith("FI_EFA_USE_DEVICE_RDMA=1 does ")


def test_a_node_that_fails_the_check_ends_its_pod_unless_tcp_is_allowed(tmp_path: Path) -> None:
    settings = PodSettings(fabric="tcp", node="n1")
    said: list[str] = []
    with pytest.raises(PreflightError, match=r"not fit for tcp \(tcp\): .*no network interface eth0"):
        assert_fit(settings, {}, root=tmp_path, say=said.append)
    assert_fit(replace(settings, allow_tcp=True), {}, root=tmp_path, say=said.append)
    assert said[-1].startswith("WARNING: training nevertheless, since TCP is allowed: ")
    assert "no network interface eth0" in said[-1]
