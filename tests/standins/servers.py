"""Third-party stand-ins, each a process on loopback: moto for S3, Azurite for Azure Blob Storage."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.process.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_S = 180
AZURITE = Path(sys.prefix) / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
AZURITE_ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def moto_server(log: Path) -> Iterator[int]:
    """Run moto's S3; yields its port."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("moto_s3.py")), str(port)]
    with _serving(command, port, log):
        yield port


def why_no_azurite() -> str | None:
    """Return why Azurite cannot be started here; None if it can."""
    if shutil.which("node") is None:
        return "node is not installed"
    return None if AZURITE.exists() else f"{AZURITE} is not there: npm could not install it at set-up"


@contextmanager
def azurite(log: Path) -> Iterator[int]:
    """Run Azurite; yields its port."""
    port = free_port()
    command = ["node", str(AZURITE), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
    # The SDK speaks a newer version of the service's API than this Azurite knows.
    command += ["--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    with _serving(command, port, log):
        yield port


@contextmanager
def _serving(command: list[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            _await_answer(process, port, log)
            yield
        finally:
            process.kill()
            process.wait()


def _await_answer(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{process.args!r} does not answer: {log.read_text(errors='replace')[-2000:]}")
