"""How GPUs of different nodes talk, by the machine's network cards: what every process of a run needs.

A3 High has GPUDirect-TCPX and A3 Mega GPUDirect-TCPXO: plug-ins of NCCL that reach the GPUs' memory through
cards of their own. All other machines talk TCP through the one card that they have.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cloudrec.providers.gcp.offers import TCPX, TCPXO

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.providers.gcp.offers import Hardware

_TCP: Mapping[str, str] = MappingProxyType({"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"})
# Which cores of the two sockets serve each card, as Google has measured it.
_SEND = "eth1:8-21,112-125;eth2:8-21,112-125;eth3:60-73,164-177;eth4:60-73,164-177"
_RECEIVE = "eth1:22-35,126-139;eth2:22-35,126-139;eth3:74-87,178-191;eth4:74-87,178-191"
_TCPX: Mapping[str, str] = MappingProxyType(
    {
        "LD_LIBRARY_PATH": "/usr/local/tcpx/lib64:/usr/local/nvidia/lib64",
        "NCCL_ALGO": "Ring,Tree",
        "NCCL_CROSS_NIC": "0",
        "NCCL_DYNAMIC_CHUNK_SIZE": "524288",
        "NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0",
        "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS": "500000",
        "NCCL_GPUDIRECTTCPX_RX_BINDINGS": _RECEIVE,
        "NCCL_GPUDIRECTTCPX_TX_BINDINGS": _SEND,
        "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX": "/run/tcpx",
        "NCCL_NET_GDR_LEVEL": "PIX",
        "NCCL_NSOCKS_PERTHREAD": "4",
        "NCCL_P2P_NET_CHUNKSIZE": "524288",
        "NCCL_P2P_NVL_CHUNKSIZE": "1048576",
        "NCCL_P2P_PCI_CHUNKSIZE": "524288",
        "NCCL_P2P_PXN_LEVEL": "0",
        "NCCL_PROTO": "Simple",
        "NCCL_SOCKET_NTHREADS": "1",
    }
)
# The rest is in a script beside the plug-in, of the same version as it: a checker refuses other values.
_TCPXO_LIBRARY = "/usr/local/nvidia/lib64"
_TCPXO: Mapping[str, str] = MappingProxyType(
    {
        "LD_LIBRARY_PATH": _TCPXO_LIBRARY,
        "NCCL_LIB_DIR": _TCPXO_LIBRARY,
        "NCCL_FASTRAK_CTRL_DEV": "eth0",
        "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
    }
)
TCPXO_PROFILE = f"{_TCPXO_LIBRARY}/nccl-env-profile.sh"  # to be sourced before a process begins


def environment(hardware: Hardware) -> dict[str, str]:
    """Return the variables that every process of a run needs."""
    cards = ",".join(f"eth{number + 1}" for number in range(hardware.gpu_nics))
    if hardware.transport == TCPX:
        return {**_TCP, **_TCPX, "NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": cards}
    if hardware.transport == TCPXO:
        return {**_TCP, **_TCPXO, "NCCL_FASTRAK_IFNAME": cards}
    return dict(_TCP)


def details(hardware: Hardware, networks: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return what manifests need to know: how GPUs talk, and which networks a pod is to be in.

    Args:
        hardware: of the nodes.
        networks: network and subnetwork of each card for the GPUs alone, in the cards' order.
    """
    told: dict[str, Any] = {"fabric": hardware.transport}
    if hardware.gpu_nics:
        told["networks"] = [
            {"interface": f"eth{number + 1}", "network": vpc, "subnetwork": subnetwork}
            for number, (vpc, subnetwork) in enumerate(networks)
        ]
    if hardware.transport == TCPXO:
        told["profile"] = TCPXO_PROFILE
    return told
