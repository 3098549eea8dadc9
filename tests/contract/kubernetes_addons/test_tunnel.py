"""A tunnel to an API server, such as a port forward: CLOUDREC_API_ADDRESS names its end."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cloudrec.errors import PreflightError
from cloudrec.kubernetes.client.client import Kube
from tests.contract.kubernetes_addons.support import Server


@contextmanager
def forwarded(port: int) -> Iterator[tuple[int, list[socket.socket]]]:
    """Forward a port of this machine to another one, as `aws ssm start-session` does.

    Yields the port and the connections that were carried.
    """

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the other direction has ended

    def accept() -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", port))
            held.append(near)
            far_ends.append(far)
            for pair in ((near, far), (far, near)):
                threading.Thread(target=carry, args=pair, daemon=True).start()

    held: list[socket.socket] = []
    far_ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield listening.getsockname()[1], held
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
            for each in (*held, *far_ends):
                each.close()


def test_calls_take_the_tunnel_and_the_certificate_keeps_its_name(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = yaml.safe_load(Path(server.kubeconfig).read_text())
    (entry,) = document["clusters"]
    port = int(entry["cluster"]["server"].rpartition(":")[2])
    target = replace(server.target(), kubeconfig=str(tmp_path / "kubeconfig"))
    Path(target.kubeconfig).write_text(json.dumps(document))
    with forwarded(port) as (end, carried):
        monkeypatch.setenv("CLOUDREC_API_ADDRESS", f"127.0.0.1:{end}")
        with Kube.connect(target, patience_s=0.01) as kube:
            assert kube.version().startswith("v1.")
        assert len(carried) == 1
        entry["cluster"]["server"] = "https://another.example:443"
        Path(target.kubeconfig).write_text(json.dumps(document))
        with (
            Kube.connect(target, patience_s=0.01) as kube,
            pytest.raises(PreflightError, match="certificate"),
        ):
            kube.version()


@pytest.mark.parametrize("address", ["8443", "127.0.0.1", "127.0.0.1:port", "https://127.0.0.1:8443"])
def test_an_address_without_a_host_or_a_port_is_refused(
    server: Server, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("CLOUDREC_API_ADDRESS", address)
    with pytest.raises(PreflightError, match="it must be HOST:PORT"):
        Kube.connect(server.target())
