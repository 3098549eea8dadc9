"""A run on the stand-in with simulated pods, which start and end as the test requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cloudrec.kubernetes.client.client import Kube
from cloudrec.launchers import launcher
from cloudrec.launchers.base.protocol import Launcher, RunStatus
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from tests.contract.kubernetes.support import Server

IMAGE = "registry.example/cloudrec-trainer@sha256:" + "5c" * 32
PATIENCE_S = 150.0


class Site:
    """One home, one namespace on the stand-in."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def spec(self, name: str, how: str = "torchrun", **changes: Any) -> RunSpec:
        """A run of two nodes; `target` and `settings` are merged into the defaults."""
        target = self.server.target(**changes.pop("target", {}))
        settings = {"probe": False, **changes.pop("settings", {})}
        usual: dict[str, Any] = {
            "name": name,
            "cluster": "c",
            "provider": "kubernetes",
            "launcher": how,
            "nodes": 2,
            "nproc_per_node": 2,
            "image": IMAGE,
            "storage": f"file://{self.folder}/store",
            "stop_grace_s": 5,
        }
        return RunSpec(**{**usual, "target": target, "settings": settings, **changes})

    def create(self, spec: RunSpec) -> tuple[Launcher, RunFolder]:
        """The launcher, and the run before its submission."""
        return launcher(spec.launcher), create_run(self.folder / "runs", spec)

    def launch(self, spec: RunSpec) -> tuple[Launcher, RunFolder]:
        """The launcher, and the submitted run."""
        engine, run = self.create(spec)
        engine.submit(run)
        return engine, run


def await_status(
    engine: Launcher, run: RunFolder, test: Callable[[RunStatus], bool], patience_s: float = PATIENCE_S
) -> RunStatus:
    """The first status that satisfies the predicate."""
    deadline = time.monotonic() + patience_s
    while not test(status := engine.state(run)):
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
    return status


def await_true(test: Callable[[], bool], patience_s: float = PATIENCE_S) -> None:
    """Wait until the condition is true."""
    deadline = time.monotonic() + patience_s
    while not test():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def names(kube: Kube, kind: str, namespace: str, run: str) -> list[str]:
    """The names of a run's objects of one kind."""
    found = kube.list(kind, namespace=namespace, labels={"cloudrec/run": run})
    return sorted(each["metadata"]["name"] for each in found)
