"""Whole nodes of each fabric, as the files of a folder, and what NCCL logs on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cloudrec.agent.checks.node import Nccl
from cloudrec.agent.settings import PodSettings
from cloudrec.transport import profile_of
from tests.unit.agent.support_pod import write

OPTMEM = "proc/sys/net/core/optmem_max"
PEERMEM = "sys/module/nvidia_peermem/refcnt"
# As NCCL logs them: src/graph/topo.cc, and each plug-in's own line.
DIRECT = "NCCL INFO NET/{net} : GPU Direct RDMA {state} for HCA {card} '{name}'"
NO_PLUGIN = "NCCL INFO NET/Plugin: Could not find: libnccl-net.so"
SOCKET = "NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"


LINKS = {"efa": "Unspecified", "infiniband": "InfiniBand", "rdma": "Ethernet"}  # of RDMA ports


@dataclass(frozen=True, kw_only=True)
class Kit:
    """One fabric: a machine, and what a whole node of it shows."""

    fabric: str
    machine: str
    cards: tuple[str, ...]
    device: str  # the file or folder of a card, with its number
    line: str
    net: str
    nccl: str
    files: tuple[str, ...] = ()
    scripts: Mapping[str, str] = field(default_factory=dict)  # the plug-in's, which set its variables
    mtu: int = 9001
    gpus: int = 8

    @property
    def settings(self) -> PodSettings:
        return PodSettings(
            fabric=self.fabric, instance_type=self.machine, gpus=self.gpus, cards=len(self.cards), node="n1"
        )

    def log(self, *, state: str = "Enabled") -> tuple[str, ...]:
        return (
            self.line,
            *(
                DIRECT.format(net=self.net, state=state, card=number, name=name)
                for number, name in enumerate(self.cards)
            ),
        )

    def answer(self) -> Nccl:
        return Nccl(gpus=self.gpus, built_for_cuda=True, version=self.nccl, log=self.log())

    def node(self, root: Path) -> Path:
        profile = profile_of(self.fabric, self.machine)
        files = {f"dev/nvidia{number}": "" for number in range(self.gpus)}
        files |= dict.fromkeys(self.files, "")
        files |= {self.device.format(number=number): "" for number in range(len(self.cards))}
        if kind := LINKS.get(self.fabric):
            for name in self.cards:
                port = f"sys/class/infiniband/{name}/ports/1"
                files |= {f"{port}/state": "4: ACTIVE\n", f"{port}/link_layer": f"{kind}\n"}
        files |= {f"sys/class/net/{each}/mtu": f"{self.mtu}\n" for each in profile.expects.interfaces}
        files["sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"] = "5128\n"
        files["proc/self/status"] = "CapEff:\t0000000000004000\n"  # IPC_LOCK alone
        files[PEERMEM] = "0"
        if profile.expects.optmem:
            files[OPTMEM] = f"{profile.expects.optmem}\n"
        if topology := profile.environment.get("NCCL_TOPO_FILE"):
            files[topology.lstrip("/")] = ""
        for name, text in self.scripts.items():
            files[name] = text
        return write(root, files)


GIB = ("usr/local/gib/scripts/set_nccl_env.sh",)
# nccl-env-profile.sh of the TCPXO plug-in names these.
GUEST = "usr/local/nvidia/lib64/a3plus_guest_config.textproto"
TUNER = "usr/local/nvidia/lib64/a3plus_tuner_config.textproto"
TCPXO = f"""\
export NCCL_TUNER_CONFIG_PATH=/{TUNER}
export NCCL_SHIMNET_GUEST_CONFIG_CHECKER_CONFIG_FILE=/{GUEST}
"""
KITS = {
    "efa": Kit(
        fabric="efa",
        machine="p5.48xlarge",
        cards=tuple(f"rdmap{number}s0" for number in range(32)),
        device="dev/infiniband/uverbs{number}",
        line="NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)",
        net="AWS Libfabric",
        nccl="2.29.7",
    ),
    "infiniband": Kit(
        fabric="infiniband",
        machine="Standard_ND96isr_H100_v5",
        cards=tuple(f"mlx5_{number}" for number in range(8)),
        device="dev/infiniband/uverbs{number}",
        line="NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        net="IB",
        nccl="2.29.7",
    ),
    "tcpx": Kit(
        fabric="tcpx",
        machine="a3-highgpu-8g",
        cards=tuple(f"eth{number}" for number in range(1, 5)),
        device="sys/class/net/eth{number}/device",
        line="NCCL INFO NET/GPUDirectTCPX ver. 3.1.9.",
        net="GPUDirectTCPX_v7",
        nccl="2.29.7",
    ),
    "tcpxo": Kit(
        fabric="tcpxo",
        machine="a3-megagpu-8g",
        cards=tuple(f"eth{number}" for number in range(1, 9)),
        device="dev/aperture_devices/{number}",
        line="NCCL INFO NET/FasTrak v1.0.15",
        net="FasTrak",
        nccl="2.28.7",
        files=("usr/local/nvidia/lib64/nccl-env-profile.sh", GUEST, TUNER),
        scripts={"usr/local/nvidia/lib64/nccl-env-profile.sh": TCPXO},
    ),
    "rdma-a3-ultra": Kit(
        fabric="rdma",
        machine="a3-ultragpu-8g",
        cards=tuple(f"mlx5_{number}" for number in range(8)),
        device="dev/infiniband/uverbs{number}",
        line="NCCL INFO NET/gIB : Initializing gIB v1.1.2",
        net="gIB",
        nccl="2.29.7",
        files=(*GIB, "usr/local/gib/configs/tuner_config_a3u.txtpb"),
    ),
    "rdma-a4": Kit(
        fabric="rdma",
        machine="a4-highgpu-8g",
        cards=tuple(f"mlx5_{number}" for number in range(8)),
        device="dev/infiniband/uverbs{number}",
        line="NCCL INFO Using network gIB",
        net="gIB",
        nccl="2.29.7",
        files=(*GIB, "usr/local/gib/configs/tuner_config_a4.txtpb"),
    ),
}
