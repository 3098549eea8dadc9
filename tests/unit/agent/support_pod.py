"""Events, attempts and nodes as a pod sees them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cloudrec.launchers.base.ledger import LedgerEvent


def started(attempt: int, rank: int = 0, *, time: float = 0.0, launch: int = 1) -> LedgerEvent:
    details: dict[str, Any] = {"attempt": attempt, "rank": rank, "local_rank": rank}
    return LedgerEvent(time=time, event="rank_started", launch=launch, details=details)


def ended(attempt: int, code: int, rank: int = 0, *, time: float = 0.0, launch: int = 1) -> LedgerEvent:
    details = {"attempt": attempt, "rank": rank, "exit_code": code}
    return LedgerEvent(time=time, event="rank_ended", launch=launch, details=details)


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root
