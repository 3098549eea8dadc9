"""A library of C kernels, which run on the threads of torch."""

from __future__ import annotations

import ctypes
import logging
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainer.native.compiler import compiled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOG = logging.getLogger(__name__)

_DONE, _NO_MEMORY = -1, -2  # of share.h
_RUNTIME = re.compile(r"/lib(gomp|omp|iomp5)\b[-.\w]*$")
_MAPS = Path("/proc/self/maps")
_KERNEL = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]  # the arguments of each: job, first, last


class Library:
    """The kernels of one C source; any thread may run them."""

    def __init__(self, path: Path, kernels: Sequence[str]) -> None:
        self._library = ctypes.CDLL(str(path))
        for name in kernels:
            function = getattr(self._library, name)
            function.argtypes, function.restype = _KERNEL, ctypes.c_int64
        share = self._library.share
        share.argtypes = [*[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 2]
        share.restype = ctypes.c_int64

    def run(self, kernel: str, job: ctypes.Structure, count: int) -> int | None:
        """Run a kernel on `count` items, divided among as many threads as torch's operations use.

        Return the position of an id that its table does not have, or None.

        Raises:
            MemoryError: a part had no memory.
        """
        threads = min(torch.get_num_threads(), count)
        function, team = getattr(self._library, kernel), openmp_team()
        if threads <= 1:
            found = function(ctypes.byref(job), 0, count)
        elif team is not None:
            address = ctypes.cast(function, ctypes.c_void_p)
            found = self._library.share(team, address, ctypes.byref(job), count, threads)
        else:
            found = _by_python(function, job, count, threads)
        if found == _NO_MEMORY:
            raise MemoryError(f"no memory for {kernel} of {count:,} items")
        return None if found == _DONE else int(found)


def load(name: str, kernels: Sequence[str], *flags: str, otherwise: str) -> Library | None:
    """Load kernels of NAME.c; None, with a warning of what happens otherwise, if they cannot be compiled."""
    try:
        return Library(compiled(name, *flags), kernels)
    except (OSError, subprocess.SubprocessError) as error:
        lines = str(getattr(error, "stderr", None) or error).strip().splitlines() or [""]
        _LOG.warning("%s: no C kernel (%s)", otherwise, lines[0])
        return None


def _by_python(function: Callable[..., int], job: ctypes.Structure, count: int, threads: int) -> int:
    """Divide a job as share.c does."""
    cuts = [count * index // threads for index in range(threads + 1)]
    pool = _threads(threads - 1)
    others = [pool.submit(function, ctypes.byref(job), *part) for part in pairwise(cuts[1:])]
    results = [function(ctypes.byref(job), 0, cuts[1]), *(each.result() for each in others)]
    return min((each for each in results if each != _DONE), default=_DONE)


@cache
def openmp_team() -> int | None:
    """Return the address of GOMP_parallel in the OpenMP runtime that torch uses; None if that is not known.

    A runtime's threads spin for a while after each operation. Other threads would share the cores with them:
    with two threads on two cores, the tables' kernels were as slow as with one.
    """
    folder = str(Path(torch.__file__).parent)
    paths = sorted(_runtimes(), key=lambda path: not path.startswith(folder))
    if not paths or (len(paths) > 1 and not paths[0].startswith(folder)):
        return None
    try:
        return ctypes.cast(ctypes.CDLL(paths[0]).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


def _runtimes() -> set[str]:
    """Return the OpenMP runtimes that this process has loaded."""
    try:
        lines = _MAPS.read_text(encoding="utf-8").splitlines()
    except OSError:  # no Linux
        return set()
    paths = {line[line.index("/") :] for line in lines if "/" in line}
    return {path for path in paths if _RUNTIME.search(path)}


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "kernels")
