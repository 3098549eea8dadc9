"""The server's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """What the command line of the server says.

    Attributes:
        package: the folder of the model.
        host: the address to listen at.
        port: the port; 0 for a free one.
        threads: that encode and score.
        max_batch_ms: milliseconds that a batch waits for further requests.
        max_rows: of a request, and of a batch.
        max_body: bytes of a request.
        poll_s: seconds between two looks for a newer version.
    """

    package: Path
    host: str = "127.0.0.1"
    port: int = 8080
    threads: int = 1
    max_batch_ms: float = 0.0
    max_rows: int = 4096
    max_body: int = 8 << 20
    poll_s: float = 5.0
