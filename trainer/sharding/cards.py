"""How fast GPUs reach memory and one another, by NVIDIA's data sheets: what the planner weighs kernels by."""

from __future__ import annotations

from dataclasses import dataclass

GB_S = 10**9  # as data sheets count


@dataclass(frozen=True, slots=True)
class CardSpeeds:
    """Bytes per second of a GPU: its own memory; the host's; and to the other GPUs of its machine."""

    memory: float
    host: float  # PCIe, one direction
    peers: float  # NVLink, both directions as data sheets and torchrec's default count; else PCIe


_PCIE4, _PCIE5 = 32 * GB_S, 64 * GB_S
_SPEEDS = {  # by the beginning of the name that the driver gives
    "NVIDIA B300": CardSpeeds(8000 * GB_S, _PCIE5, 1800 * GB_S),
    "NVIDIA B200": CardSpeeds(8000 * GB_S, _PCIE5, 1800 * GB_S),
    "NVIDIA GB200": CardSpeeds(8000 * GB_S, 450 * GB_S, 1800 * GB_S),  # the host by NVLink-C2C
    "NVIDIA H200": CardSpeeds(4800 * GB_S, _PCIE5, 900 * GB_S),
    "NVIDIA H100": CardSpeeds(3350 * GB_S, _PCIE5, 900 * GB_S),
    "NVIDIA H100 NVL": CardSpeeds(3900 * GB_S, _PCIE5, 600 * GB_S),
    "NVIDIA H100 PCIe": CardSpeeds(2000 * GB_S, _PCIE5, 2 * _PCIE5),
    "NVIDIA A100-SXM4-40GB": CardSpeeds(1555 * GB_S, _PCIE4, 600 * GB_S),
    "NVIDIA A100-SXM4-80GB": CardSpeeds(2039 * GB_S, _PCIE4, 600 * GB_S),
    "NVIDIA A100-PCIE-40GB": CardSpeeds(1555 * GB_S, _PCIE4, 2 * _PCIE4),
    "NVIDIA A100 80GB PCIe": CardSpeeds(1935 * GB_S, _PCIE4, 2 * _PCIE4),
    "NVIDIA A10": CardSpeeds(600 * GB_S, _PCIE4, 2 * _PCIE4),
    "NVIDIA A10G": CardSpeeds(600 * GB_S, _PCIE4, 2 * _PCIE4),
    "NVIDIA L4": CardSpeeds(300 * GB_S, _PCIE4, 2 * _PCIE4),
    "NVIDIA L40S": CardSpeeds(864 * GB_S, _PCIE4, 2 * _PCIE4),
    "Tesla T4": CardSpeeds(320 * GB_S, _PCIE4 / 2, _PCIE4),
    "Tesla V100": CardSpeeds(900 * GB_S, _PCIE4 / 2, 300 * GB_S),
}


def speeds_of(name: str | None) -> CardSpeeds | None:
    """Return the speeds of the GPU that the driver names so; None if it is not known, or there is none."""
    found = [known for known in _SPEEDS if name is not None and _begins(name, known)]
    return _SPEEDS[max(found, key=len)] if found else None


def _begins(name: str, known: str) -> bool:
    """Whether a name begins with the known one, at the end of a word: an L40 is no L4."""
    return name.startswith(known) and not name[len(known) : len(known) + 1].isalnum()
