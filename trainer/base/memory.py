"""The allocator's settings for the memory of tensors: large pages, and freed memory that is kept."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping, Sequence

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4  # mallopt's names, from malloc.h
_NEVER = 2**31 - 1
_PAD_BYTES = 64 << 20
_HUGE_BYTES = 2 << 20
_COLLAPSE = 25  # MADV_COLLAPSE of madvise(2), since Linux 6.1
_SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_WANTED = "THP_MEM_ALLOC_ENABLE"


def use_huge_pages(environment: MutableMapping[str, str]) -> None:
    """Make torch request 2 MB pages for large tensors; call it before the first tensor is made.

    A table is read and written row by row all over its memory, and frozen for a checkpoint by a fork, which
    copies the list of its pages: 3 GB are frozen in 6 to 12 ms instead of 51, and 200,000 rows
    updated in 8 ms instead of 11 (Linux 6, EPYC). It has no effect if transparent_hugepage is `never`.
    """
    environment.setdefault(_WANTED, "1")


def keep_freed_memory() -> bool:
    """Make glibc keep freed memory for the next step, on CPUs; False if the C library is not glibc.

    By default glibc returns every freed activation to the kernel and maps it again in the next step, page by
    page: 3,500 page faults per step of 1,024 samples, a tenth of its time. Call it after the tables are
    allocated: they are never freed, and stay outside the heap.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    settings = ((_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD_BYTES), (_MMAP_MAX, 0))
    results = [mallopt(name, value) for name, value in settings]  # a list: all are set, even if one fails
    return all(results)


class HugePages:
    """Joins the small pages of memory to large ones again, in a thread, one large page at a time.

    While a forked child lives, each page that training writes to becomes many small ones, and stays so: steps
    were 5 to 18 % slower after the first checkpoint, and the next fork had 512 times the pages to list. The
    kernel's own thread joins 16 MB in 10 s. Systems before Linux 6.1 keep the small pages.
    """

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        """Begin to join the pages of spans of memory, each (address, bytes), which must stay allocated."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._join_pages, args=(_merged(spans),), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop after the page at hand, and wait for that."""
        self._stopped.set()
        self._thread.join()

    def wait(self) -> None:
        """Wait until all pages were tried."""
        self._thread.join()

    def _join_pages(self, spans: Sequence[tuple[int, int]]) -> None:
        if not _are_wanted():
            return
        madvise = ctypes.CDLL(None, use_errno=True).madvise  # lets other threads run meanwhile
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for address, size in spans:
            first = -(-address // _HUGE_BYTES) * _HUGE_BYTES
            for page in range(first, address + size - _HUGE_BYTES + 1, _HUGE_BYTES):
                # A page that cannot be joined, for lack of memory in one piece, stays as it is.
                if self._stopped.is_set():
                    return
                madvise(page, _HUGE_BYTES, _COLLAPSE)


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the spans in order, neighbours as one: tables lie side by side, and share pages."""
    merged: list[tuple[int, int]] = []
    for address, size in sorted(spans):
        if merged and address <= sum(merged[-1]) + _HUGE_BYTES:
            first = merged[-1][0]
            merged[-1] = (first, max(address + size, sum(merged[-1])) - first)
        else:
            merged.append((address, size))
    return merged


def _are_wanted() -> bool:
    """Whether neither the system's owner nor the user has turned large pages off; the kernel asks neither."""
    try:
        is_off = "[never]" in _SETTING.read_text(encoding="ascii")
    except OSError:  # not Linux, or a kernel without them
        return False
    return not is_off and os.environ.get(_WANTED) == "1"
