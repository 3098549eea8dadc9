"""C kernels, compiled for this processor on first use, like those of torch.compile.

The library is in the user's cache folder. Its name is a hash of the source, the compiler's version and the
processor, so that machines with a shared home directory do not load instructions that they lack.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

_LOG = logging.getLogger(__name__)
_SOURCE = Path(__file__).with_name("rows.c")
# -ffp-contract=off: no implicit fused multiply-add, so that results are the same on every processor.
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 120

_INT, _FLOAT, _POINTER = ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
_SIGNATURES = {
    "look_up": [*[_POINTER] * 5, *[_INT] * 5, _POINTER, _INT],
    "update": [
        *[_POINTER] * 3,
        *[_INT] * 2,
        *[_POINTER] * 4,
        *[_INT] * 4,
        _POINTER,
        *[_INT] * 2,
        *[_FLOAT] * 4,
    ],
}


@cache
def load_rows() -> ctypes.CDLL | None:
    """Load the kernels of rows.c, after compiling them if needed; None, with a warning, if that fails."""
    try:
        return _declare(ctypes.CDLL(str(_library())))
    except (OSError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or error
        _LOG.warning("tables are updated by torch, at a third of the speed: no C kernel (%s)", _short(detail))
        return None


def _declare(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, _INT
    return library


def _library() -> Path:
    compiler = _find_compiler()
    known = (_SOURCE.read_bytes(), " ".join(_FLAGS).encode(), _version(compiler), _processor())
    name = f"rows-{hashlib.sha256(b'|'.join(known)).hexdigest()[:20]}.so"
    folder = _private_folder()
    path = folder / name
    if not path.exists():
        _compile(compiler, path)
    return path


def _compile(compiler: str, path: Path) -> None:
    """Compile to a temporary name, then rename, which is atomic: ranks may compile at the same time."""
    descriptor, draft = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        command = [compiler, *_FLAGS, str(_SOURCE), "-o", draft, "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT_S)
        Path(draft).rename(path)
    finally:
        Path(draft).unlink(missing_ok=True)


def _find_compiler() -> str:
    wanted = (os.environ.get("CC", ""), *_COMPILERS)
    found = next((path for name in wanted if name and (path := shutil.which(name))), None)
    if found is None:
        raise FileNotFoundError("no C compiler: install gcc or clang, or set CC")
    return found


def _private_folder() -> Path:
    """Return the cache folder; PermissionError if others can write to it, since its files are executed."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "cloudrec-trainer"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise PermissionError(f"{folder} can be written by others; make it private, or set XDG_CACHE_HOME")
    return folder


def _version(compiler: str) -> bytes:
    return subprocess.run([compiler, "--version"], check=True, capture_output=True, timeout=_TIMEOUT_S).stdout


def _processor() -> bytes:
    """Return the facts about the processor that -march=native depends on, approximately."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor().encode()
    wanted = ("model name", "flags", "Features", "CPU part")
    kept = {line for line in lines if line.startswith(wanted)}
    return "\n".join(sorted(kept)).encode()


def _short(detail: object) -> str:
    lines = str(detail).strip().splitlines() or [""]
    return lines[0]
