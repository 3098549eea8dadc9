"""How the C library keeps memory."""

from __future__ import annotations

import ctypes
import sys

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT = 64 << 20  # bytes
_LARGE = 32 << 20  # bytes: the most that glibc takes


def keep_freed_memory() -> None:
    """Let this process keep up to 64 MiB that it has freed; it needs them again for the next batch.

    Otherwise glibc returns each large array to the system, which must clear its pages at the next use.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGE)
        mallopt(_TRIM_THRESHOLD, _KEPT)
