"""Compiles C kernels for this processor on first use, like torch.compile.

The library is in the user's cache folder. Its name is a hash of the source, the compiler's version and the
processor, so that machines with a shared home directory do not load instructions that they lack.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC")
_COMPILERS = ("cc", "gcc", "clang")
_TIMEOUT_S = 120
_HERE = Path(__file__).parent
_SHARED = ("share.c", "share.h")  # parts of every library


def compiled(name: str, *flags: str) -> Path:
    """Return the library of NAME.c, after compiling it with these flags of the compiler if needed.

    Raises:
        OSError: there is no compiler, or the cache folder is not private.
        subprocess.SubprocessError: the compiler fails.
    """
    compiler = _find_compiler()
    sources = [_HERE / f"{name}.c", *(_HERE / part for part in _SHARED)]
    known = (*(path.read_bytes() for path in sources), " ".join((*_FLAGS, *flags)).encode())
    known = (*known, _version(compiler), _processor())
    path = _private_folder() / f"{name}-{hashlib.sha256(b'|'.join(known)).hexdigest()[:20]}.so"
    if not path.exists():
        files = [str(each) for each in sources if each.suffix == ".c"]
        _compile([compiler, *_FLAGS, *flags, *files], path)
    return path


def _compile(command: Sequence[str], path: Path) -> None:
    """Compile to a temporary name, then rename, which is atomic: ranks may compile at the same time."""
    descriptor, draft = tempfile.mkstemp(suffix=".so", dir=path.parent)
    os.close(descriptor)
    try:
        subprocess.run(
            [*command, "-o", draft, "-lm"], check=True, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
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
