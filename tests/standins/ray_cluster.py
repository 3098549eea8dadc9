"""A real Ray cluster of several nodes on loopback addresses, in separate network and process namespaces.

Entering it puts the calling thread into that network, and so whatever it starts and connects to.
"""

from __future__ import annotations

import ctypes
import importlib.util
import ipaddress
import os
import secrets
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

import pytest

_UNSHARE = ("unshare", "-n", "--fork", "--pid", "--mount-proc", "--kill-child")
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LISTENS = "0A"
_START_S = 300.0
_ATTEMPTS = 3  # Ray gives up after 30 s if its raylet has not registered, which happens on busy cores
_POLL_S = 0.1
_SHELL = 'ip link set lo up; echo $$; exec 3<&0; while read -r line <&3; do eval "$line"; done'


class RayCluster:
    """A head, which is a node like others, and nodes that are added to it.

    Args:
        folder: the folder of its files.
        cpus: the CPUs that each node reports.
    """

    def __init__(self, folder: Path, *, cpus: int = 2) -> None:
        self._cpus = cpus
        self.folder = folder
        self.url = "http://127.0.0.1:8265"
        self.token_file = folder / "token"
        self.token_file.write_text(secrets.token_hex(16))
        self._sockets = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._back = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        environment |= {
            "PATH": f"{_small_venv(folder / 'venv')}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_agent_register_timeout_ms": f"{_START_S * 1000:.0f}",
            "RAY_DASHBOARD_STARTUP_TIMEOUT_S": f"{_START_S:.0f}",
            "PIP_NO_INDEX": "1",
        }
        self._shell = subprocess.Popen(
            [*_UNSHARE, "bash", "-c", _SHELL],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._shell.stdout
        self._shell.stdout.readline()  # the network is up

    def __enter__(self) -> Self:
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children").read_text().split()
        with Path(f"/proc/{children[0]}/ns/net").open() as inside:
            _enter(inside.fileno())
        self._start("--head", "--port=6399", "--dashboard-host=127.0.0.1", host=1)
        give_up = time.monotonic() + _START_S
        while not self._answers():
            assert time.monotonic() < give_up, self.log()
            time.sleep(_POLL_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()  # and with it everything in there
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe
            pipe.close()
        _enter(self._back)
        os.close(self._back)
        shutil.rmtree(self._sockets, ignore_errors=True)

    def add(self, host: int) -> None:
        """Add a node at 127.0.0.HOST, and wait until the head knows it."""
        self._start("--address=127.0.0.1:6399", host=host)
        give_up = time.monotonic() + _START_S
        while f"127.0.0.{host}" not in self._nodes():
            assert time.monotonic() < give_up, self.log()
            time.sleep(_POLL_S)

    def lose(self, host: int) -> None:
        """Kill a node's raylet with all its workers, without a notice."""
        self._do(f"pkill -KILL -f 'raylet/raylet .*--node_ip_address=127.0.0.{host} '")

    def lose_head(self) -> None:
        """Kill all processes of the head."""
        self._do("pkill -KILL -f dashboard/dashboard.py; pkill -KILL -f gcs_server")

    def listening(self) -> set[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        """Return the addresses of all listening sockets in its network."""
        found: set[ipaddress.IPv4Address | ipaddress.IPv6Address] = set()
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/thread-self/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTENS:
                    found.add(_address(words[1].partition(":")[0]))
        return found

    def log(self) -> str:
        """Return the output of Ray's start."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _start(self, *options: str, host: int) -> None:
        command = ["ray", "start", *options, f"--node-ip-address=127.0.0.{host}", f"--num-cpus={self._cpus}"]
        log = self.folder / f"node-{host}.log"
        own = self._sockets / str(host)  # a node that ends removes from it what others may still use
        start = f"{' '.join(command)} --temp-dir={own} >>{log} 2>&1 </dev/null"
        kill = f"pkill -KILL -f '[r]ay.*{own}/'"  # what a failed start has left
        self._do(
            f"for n in {' '.join(map(str, range(_ATTEMPTS)))}; do {start} && break; {kill}; sleep 1; done &"
        )

    def _do(self, line: str) -> None:
        assert self._shell.stdin
        self._shell.stdin.write(f"{line}\n")
        self._shell.stdin.flush()

    def _nodes(self) -> str:
        headers = {"Authorization": f"Bearer {self.token_file.read_text()}"}
        request = urllib.request.Request(f"{self.url}/api/v0/nodes", headers=headers)  # noqa: S310 - http
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310 - as above
                return str(answer.read())
        except OSError:  # what answers this begins later than the dashboard does
            return ""

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/api/authentication_mode", timeout=5) as answer:  # noqa: S310 - http
                return bool(answer.status == 200)
        except OSError:
            return False


def _small_venv(folder: Path) -> Path:
    """Make a virtual environment that uses the packages of this one; return the folder of its commands.

    For a run with requirements Ray copies the environment that it runs in, which takes minutes for this one.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    packages.joinpath("these.pth").write_text(
        f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n", encoding="utf-8"
    )
    ray = folder / "bin" / "ray"
    ray.write_text(f"#!{folder}/bin/python\nfrom ray.scripts.scripts import main\nmain()\n", encoding="utf-8")
    ray.chmod(0o755)
    return ray.parent


def skip_without_ray() -> None:
    """Skip the test if Ray or a network namespace is not available, with the reason."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("ray[default] is not installed")
    if subprocess.run([*_UNSHARE, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make its own network (unshare -n)")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address as the kernel shows it: words of four bytes, each of them backwards."""
    data = b"".join(bytes.fromhex(text[at : at + 8])[::-1] for at in range(0, len(text), 8))
    address = ipaddress.ip_address(data)
    return getattr(address, "ipv4_mapped", None) or address


def _enter(descriptor: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
