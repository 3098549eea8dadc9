"""A real Slurm and a real sshd on loopback; runs use a trainer without torch."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.ledger import RunState
from cloudrec.launchers.base.run_folder import RunFolder, create_run
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.slurm.launcher import LAUNCHER

REPOSITORY = Path(__file__).parents[3]
FAKE = REPOSITORY / "tests" / "e2e" / "fake_trainer.py"
PATIENCE_S = 120.0


@contextmanager
def running_slurm(*options: str, through: tuple[str, ...] = ()) -> Iterator[dict[str, str]]:
    """Run a cluster and yield the variables that point to it; skip the tests where it cannot run.

    Args:
        options: of scripts/slurm_cluster.py.
        through: the words of a program that starts it, such as unshare.
    """
    command = [
        *through,
        sys.executable,
        str(REPOSITORY / "scripts" / "slurm_cluster.py"),
        "--install",
        *options,
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdin is not None
        assert cluster.stdout is not None
        told = json.loads(cluster.stdout.readline())
        if "error" in told:
            pytest.skip(f"no Slurm here: {told['error']}")
        try:
            yield told["env"]
        finally:
            cluster.stdin.close()
            cluster.wait(60)


def make_spec(name: str, *, nodes: int = 1, settings: dict[str, Any] | None = None, **config: Any) -> RunSpec:
    return RunSpec(
        name=name,
        launcher="slurm",
        nodes=nodes,
        stop_grace_s=20.0,
        trainer_config={"steps": 3, **config},
        trainer_command=(sys.executable, str(FAKE)),
        settings=settings or {},
    )


def new_run(home: Path, name: str, **asked: Any) -> RunFolder:
    return create_run(home / "runs", make_spec(name, **asked))


def wait_for(run: RunFolder, *states: RunState) -> RunState:
    give_up = time.monotonic() + PATIENCE_S
    while (status := LAUNCHER.state(run)).state not in states:
        assert time.monotonic() < give_up, (status, left_words(run))
        assert not status.state.is_final, (status, left_words(run))
        time.sleep(0.2)
    return status.state


def wait_for_line(run: RunFolder, text: str, *, rank: int = 0) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not any(text in line for line in LAUNCHER.logs(run, rank=rank, follow=False)):
        assert time.monotonic() < give_up, left_words(run)
        time.sleep(0.2)


def left_words(run: RunFolder) -> str:
    """The output of the job, for the message of a failed test."""
    files = sorted((run.path / "slurm").rglob("*")) if (run.path / "slurm").exists() else []
    return "\n".join(
        f"{path}: {path.read_text(errors='replace')[-2000:]}" for path in files if path.is_file()
    )


@contextmanager
def running_sshd(folder: Path, variables: dict[str, str]) -> Iterator[Path]:
    """Run sshd on loopback with separate keys; yield an ssh configuration that names it `login`."""
    sshd = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if sshd is None or os.geteuid() != 0:
        pytest.skip("no sshd here (apt-get install openssh-server), or not root")
    for key in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    told = " ".join(f"{name}={value}" for name, value in variables.items())
    settings = {
        "ListenAddress": "127.0.0.1",
        "Port": port,
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PidFile": "none",
        "UsePAM": "no",
        "StrictModes": "no",
        "PasswordAuthentication": "no",
        "PermitRootLogin": "yes",
        "SetEnv": told,
    }
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "sshd_config").write_text(text)
    config = folder / "ssh_config"
    config.write_text("".join(_ssh_host(name, key, port, folder) for name, key in _HOSTS.items()))
    host_key = (folder / "host.pub").read_text().split()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n")
    privileges = Path("/run/sshd")
    made = not privileges.exists()
    privileges.mkdir(mode=0o755, exist_ok=True)
    with (
        (folder / "sshd.log").open("wb") as log,
        subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=log) as server,
    ):
        try:
            _await_port(port)
            yield config
        finally:
            server.terminate()
            server.wait(10)
            if made:
                privileges.rmdir()


_HOSTS = {"login": "user", "strange": "stranger"}


def _ssh_host(name: str, key: str, port: int, folder: Path) -> str:
    return (
        f"Host {name}\n  HostName 127.0.0.1\n  Port {port}\n  User root\n  IdentityFile {folder}/{key}\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known\n"
    )


def _await_port(port: int) -> None:
    give_up = time.monotonic() + 180
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < give_up
            time.sleep(0.05)
        else:
            return
