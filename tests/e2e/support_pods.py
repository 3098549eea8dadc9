"""Pods without Kubernetes: agents with separate folders and any store of results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil
import yaml

from cloudrec.process.ports import free_port

FAKE = Path(__file__).parent / "fake_trainer.py"
PATIENCE_S = 300.0
REACTIONS = "keep_alive_interval=1,keep_alive_max_attempt=3,last_call_timeout=1"


@dataclass
class Pods:
    """The pods of one run, each an agent with its own work folder."""

    folder: Path
    config: dict[str, Any]
    results: str
    nodes: int = 1
    min_nodes: int = 0  # 0: as many as `nodes`; fewer: another pod hosts if the first is lost
    trainer: tuple[str, ...] = (sys.executable, "-m", "trainer")
    flags: tuple[str, ...] = ()
    grace_s: float = 10.0
    port: int = field(default_factory=free_port)
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.started:
            lose(process)

    def start(self, index: int = 0, uid: str = "a") -> subprocess.Popen[bytes]:
        config = self.folder / "trainer.yaml"
        config.write_text(yaml.safe_dump(json.loads(json.dumps(self.config))))
        torchrun = (
            *("torchrun", f"--nnodes={self.range}", "--nproc-per-node=1", "--monitor-interval=0.2"),
            *("--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}", "--rdzv-id=r-1"),
            *(f"--local-addr=127.0.0.{index + 1}", f"--rdzv-conf={self.role(index)}{REACTIONS}"),
            *("--no-python", sys.executable, "-m", "cloudrec.agent", "rank", "--"),
        )
        trainer = (*self.trainer, "--config", str(config), "--output_dir", "/cloudrec/run", *self.flags)
        agent = (
            sys.executable,
            "-m",
            "cloudrec.agent",
            "agent",
            "--termination-log",
            str(self.word(index, uid)),
        )
        environment = {
            **os.environ,
            "CLOUDREC_RUN": "r",
            "CLOUDREC_LAUNCH": "1",
            "CLOUDREC_RESULTS": self.results,
            "POD_NAME": f"r-{index}",
            "POD_UID": uid,
            "CLOUDREC_WORK": str(self.work(index, uid)),
            "CLOUDREC_GRACE_S": str(self.grace_s),
            "CLOUDREC_MAX_RESTARTS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "CLOUDREC_ELECTS_HOST": str(int(bool(self.min_nodes))),
        }
        with self.output(index, uid).open("wb") as output:
            process = subprocess.Popen(
                [*agent, "--", *torchrun, *trainer], env=environment, stdout=output, stderr=output
            )
        self.started.append(process)
        return process

    @property
    def range(self) -> str:
        return f"{self.min_nodes}:{self.nodes}" if self.min_nodes else str(self.nodes)

    def role(self, index: int) -> str:
        # All addresses are this machine's, so torch cannot decide which pod hosts; the agent decides.
        return "" if self.min_nodes else f"is_host={int(index == 0)},"

    def work(self, index: int = 0, uid: str = "a") -> Path:
        return self.folder / f"pod-{index}-{uid}"

    def word(self, index: int = 0, uid: str = "a") -> Path:
        return self.folder / f"word-{index}-{uid}"

    def output(self, index: int = 0, uid: str = "a") -> Path:
        return self.folder / f"output-{index}-{uid}"


def lose(agent: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Kill the agent as when a node is lost; return its surviving child processes."""
    family: list[psutil.Process] = []
    if agent.poll() is None:
        family = psutil.Process(agent.pid).children(recursive=True)
        agent.kill()
    agent.wait()
    _, alive = psutil.wait_procs(family, timeout=300)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    return alive


def wait_for(true: Callable[[], bool], *processes: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert all(process.poll() is None for process in processes), "a pod ended first"
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.05)


def fake_run(tmp_path: Path, *, nodes: int = 1, min_nodes: int = 0, **config: Any) -> Pods:
    trainer = (sys.executable, str(FAKE))
    results = f"file://{tmp_path}/results"
    return Pods(
        folder=tmp_path, config=config, results=results, trainer=trainer, nodes=nodes, min_nodes=min_nodes
    )


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]
