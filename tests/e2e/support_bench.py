"""One home and the real commands, each in its own process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

SMALL = (
    *("--embedding_dim", "8", "--dense_arch_layer_sizes", "16,8", "--over_arch_layer_sizes", "16,1"),
    *("--batch_size", "64", "--log_interval", "10", "--deterministic"),
)
PATIENCE_S = 300.0


class Bench:
    """One home and one prepared dataset; every command is a real process."""

    program: tuple[str, ...] = (sys.executable, "-m", "cloudrec")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"

    def run(
        self, *arguments: str, expect: int = 0, timeout_s: float = 150
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*self.program, *arguments],
            cwd=self.folder,
            env={**os.environ, "CLOUDREC_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == expect, done.stderr
        assert "Traceback" not in done.stderr
        return done

    def ask(self, *arguments: str, expect: int = 0) -> Any:
        return json.loads(self.run(arguments[0], "-o", "json", *arguments[1:], expect=expect).stdout)

    def view(self, run: str) -> dict[str, Any]:
        (view,) = self.ask("status", run)["runs"]
        assert isinstance(view, dict)
        return view

    def wait(self, run: str, ready: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        give_up = time.monotonic() + PATIENCE_S
        while not ready(view := self.view(run)):
            assert time.monotonic() < give_up, view
            time.sleep(0.2)
        return view

    def wait_for_file(self, run: str, name: str) -> None:
        give_up = time.monotonic() + PATIENCE_S
        while not (self.home / "runs" / run / name).exists():
            assert time.monotonic() < give_up
            time.sleep(0.1)

    def summary(self, run: str) -> dict[str, Any]:
        content = json.loads((self.home / "runs" / run / "summary.json").read_text(encoding="utf-8"))
        assert isinstance(content, dict)
        return content

    def processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("CLOUDREC_HOME") == str(self.home):
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found

    def wait_until_alone(self) -> None:
        give_up = time.monotonic() + 180
        while found := self.processes():
            assert time.monotonic() < give_up, [process.cmdline() for process in found]
            time.sleep(0.1)
