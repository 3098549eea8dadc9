"""The memory of a snapshot of a device's tables; without torch, as the writer's process reads this."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """The memory and the patience of the stream of a device's tables."""

    chunk: int = 16 << 20  # bytes: fills a PCIe link, and training waits at most for two: 1 ms each
    copied: int = 256 << 20  # bytes of rows that were copied before they changed, on the device
    silence_s: float = 300.0  # that training waits for a stream that does not move, until it is given up
