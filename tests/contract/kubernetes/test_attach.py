"""Commands in containers and ports of pods, through the API server; rights are checked on a real one, too."""

from __future__ import annotations

import os
import pty
import socket
import subprocess
import sys
import termios
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cloudrec.errors import UsageError
from cloudrec.kubernetes.client import streams
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import DeniedError, InvalidError, KubeError
from cloudrec.kubernetes.client.streams import ContainerPlace, LocalEnd, NotStartedError
from cloudrec.launchers.base.attach import ForwardsPorts, RunsCommands
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import CONTROL_PLANE, REAL, Server
from tests.contract.kubernetes.support_accounts import client_of
from tests.contract.kubernetes.support_runs import IMAGE, Site, await_true
from tests.contract.kubernetes.support_store import bucket

NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
FAKE = Path(__file__).parents[2] / "e2e" / "fake_trainer.py"
SERVER = """
import http.server, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"x" * int(self.path[1:]))
http.server.ThreadingHTTPServer(("127.0.0.1", 6006), Handler).serve_forever()
"""


@pytest.fixture
def nodes(server: Server, request: pytest.FixtureRequest) -> Server:
    if REAL in os.environ or CONTROL_PLANE in request.node.name:
        pytest.skip("a real API server asks a node's own kubelet, and there is none here")
    server.control(nodes=NODES, processes=True, bookkeeping={})
    return server


@contextmanager
def pod(kube: Kube, server: Server, name: str, *command: str, wait: bool = True) -> Iterator[ContainerPlace]:
    container = {"name": "main", "image": IMAGE, "command": list(command)}
    spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
    kube.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": server.namespace},
            "spec": spec,
        }
    )
    try:
        if wait:
            await_true(lambda: phase(kube, server, name) == "Running", 60)
        yield ContainerPlace(namespace=server.namespace, pod=name, container="main")
    finally:
        kube.delete("Pod", name, namespace=server.namespace)
        await_true(lambda: kube.get("Pod", name, namespace=server.namespace) is None, 60)


def phase(kube: Kube, server: Server, name: str) -> str:
    found = kube.get("Pod", name, namespace=server.namespace) or {}
    return str((found.get("status") or {}).get("phase"))


def run(
    kube: Kube, place: ContainerPlace, *command: str, given: bytes | None = None
) -> tuple[int, bytes, bytes]:
    """Run a command; return its code and what it wrote."""
    with (
        os.fdopen(os.memfd_create("in"), "w+b") as source,
        os.fdopen(os.memfd_create("out"), "w+b") as out,
        os.fdopen(os.memfd_create("err"), "w+b") as err,
    ):
        source.write(given or b"")
        source.seek(0)
        end = LocalEnd(
            stdin=None if given is None else source.fileno(), stdout=out.fileno(), stderr=err.fileno()
        )
        code = streams.execute(kube, place, command, end)
        return code, os.pread(out.fileno(), 1 << 26, 0), os.pread(err.fileno(), 1 << 26, 0)


def test_a_command_runs_in_the_container_with_its_exit_code_and_streams(nodes: Server, kube: Kube) -> None:
    with pod(kube, nodes, "place", "sleep", "600") as place:
        code, out, err = run(kube, place, "sh", "-c", "hostname; echo problem >&2; exit 7")
        assert (code, out, err) == (7, b"place\n", b"problem\n")
        code, out, _ = run(kube, place, "cat", "/proc/1/cmdline")
        assert (code, out) == (0, b"sleep\x00600\x00")
        assert run(kube, place, "true") == (0, b"", b"")
        code, out, _ = run(kube, place, "head", "-c", "5000000", "/dev/zero")
        assert (code, len(out)) == (0, 5_000_000)
        data = os.urandom(1_000_000)
        assert run(kube, place, "cat", given=data) == (0, data, b"")  # it sees the end of its input
        assert run(kube, place, "sh", "-c", "kill -9 $$")[0] == 128 + 9


def test_what_cannot_be_run_has_a_reason(nodes: Server, kube: Kube) -> None:
    with pod(kube, nodes, "place", "sleep", "600") as place:
        with pytest.raises(NotStartedError, match="executable file not found") as missing:
            run(kube, place, "no-such-program")
        assert missing.value.exit_code == 126
        with pytest.raises(InvalidError, match="container other is not valid for pod place"):
            run(kube, ContainerPlace(namespace=nodes.namespace, pod="place", container="other"), "true")
    with pytest.raises(KubeError, match='pods "place" not found'):
        run(kube, place, "true")
    with pod(kube, nodes, "over", "true", wait=False) as over:
        await_true(lambda: phase(kube, nodes, "over") == "Succeeded", 60)
        with pytest.raises(KubeError, match="container not found"):
            run(kube, over, "true")


def test_a_terminal_has_the_size_of_this_one_and_follows_it(nodes: Server, kube: Kube) -> None:
    ours, theirs = pty.openpty()
    reader, writer = os.pipe()
    size = [(81, 24)]
    script = "stty size; trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.1; done"
    end = LocalEnd(stdin=theirs, stdout=theirs, stderr=theirs, size=lambda: size[0], resized=reader)
    with pod(kube, nodes, "place", "sleep", "600") as place:
        codes: list[int] = []
        thread = threading.Thread(
            target=lambda: codes.append(streams.execute(kube, place, ["sh", "-c", script], end))
        )
        thread.start()
        printed = b""
        while b"ready" not in printed:
            printed += os.read(ours, 1000)
        size[0] = (133, 40)
        os.write(writer, b"1")
        thread.join(60)
        while b"40 133" not in printed:
            printed += os.read(ours, 1000)
    assert codes == [3]
    for descriptor in (ours, theirs, reader, writer):
        os.close(descriptor)


def test_a_port_of_the_pods_loopback_carries_data_and_errors(nodes: Server, kube: Kube) -> None:
    with pod(kube, nodes, "web", sys.executable, "-c", SERVER) as place:
        time.sleep(1)
        for size in (5, 3_000_000):
            assert (
                len(fetched(kube, place, f"GET /{size} HTTP/1.0\r\n\r\n".encode()).split(b"\r\n\r\n", 1)[1])
                == size
            )
        ours, theirs = socket.socketpair()
        with ours, theirs:
            client = streams.connect_port(kube, place, 6007)
            assert "failed to connect to localhost:6007" in streams.carry(client, theirs)
            client.close()


def fetched(kube: Kube, place: ContainerPlace, request: bytes) -> bytes:
    ours, theirs = socket.socketpair()
    client = streams.connect_port(kube, place, 6006)

    def carry() -> None:
        streams.carry(client, theirs)
        theirs.close()

    thread = threading.Thread(target=carry)
    thread.start()
    ours.sendall(request)
    found = b""
    while data := ours.recv(1 << 16):
        found += data
    thread.join(60)
    ours.close()
    client.close()
    return found


@pytest.mark.parametrize("verbs", [["get"], ["create"], []], ids=["get", "create", "neither"])
def test_entering_a_pod_needs_the_verbs_get_and_create(server: Server, kube: Kube, verbs: list[str]) -> None:
    name = f"enter-{'-'.join(verbs) or 'nothing'}"
    with limited(kube, server, name, verbs) as denied, pod(kube, server, name, "sleep", "600", wait=False):
        place = ContainerPlace(namespace=server.namespace, pod=name, container="main")
        for call in (
            lambda: run(denied, place, "true"),
            lambda: streams.connect_port(denied, place, 80),
        ):
            with pytest.raises(DeniedError) as refused:
                call()
            missing = "create" if verbs == ["get"] else "get"
            assert f"'{missing}'" in (refused.value.remedy or "")
            assert "pods/" in (refused.value.remedy or "")


def test_both_verbs_suffice_and_a_pod_without_a_node_is_refused(server: Server, kube: Kube) -> None:
    with limited(kube, server, "enter-both", ["get", "create"]) as allowed:
        kube.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "waits", "namespace": server.namespace},
                "spec": {
                    "containers": [{"name": "main", "image": IMAGE}],
                    "nodeSelector": {"no": "such-node"},
                    "terminationGracePeriodSeconds": 0,
                },
            }
        )
        place = ContainerPlace(namespace=server.namespace, pod="waits", container="main")
        with pytest.raises(InvalidError, match="pod waits does not have a host assigned"):
            run(allowed, place, "true")
        kube.delete("Pod", "waits", namespace=server.namespace)


@contextmanager
def limited(kube: Kube, server: Server, name: str, verbs: list[str]) -> Iterator[Kube]:
    """A client of an account that has these verbs on the subresources of pods, and no others."""
    metadata = {"name": name, "namespace": server.namespace}
    rbac = "rbac.authorization.k8s.io"
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rule = {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": verbs}
    rules = [rule] if verbs else []
    kube.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    kube.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": server.namespace}],
        }
    )
    with client_of(server, kube, name, server.namespace) as client:
        yield client


def test_a_run_is_entered_by_rank_and_its_ports_are_served_here(
    nodes: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with bucket(tmp_path) as (_, variables):
        spec = Site(nodes, tmp_path).spec(
            "entered",
            nodes=2,
            nproc_per_node=1,
            storage="s3://bucket",
            settings={"cpus": 1},
            environment=variables,
            target={"fabric": "none"},
            trainer_config={"steps": 100_000, "checkpoint_interval": 100_000},
            trainer_command=(sys.executable, "-c", FAKE.read_text(encoding="utf-8")),
        )
        engine, folder = Site(nodes, tmp_path).launch(spec)
        assert isinstance(engine, RunsCommands)
        assert isinstance(engine, ForwardsPorts)
        next(iter(engine.logs(folder, rank=1, follow=True)))  # it runs
        hosts = []
        for rank in (0, 1):
            code = engine.execute(
                folder, ["sh", "-c", "hostname; exit 5"], rank=rank, stdin=False, terminal=False
            )
            hosts.append(capfd.readouterr().out.strip())
            assert code == 5
        assert [host.rpartition("-")[2] for host in hosts] == ["0", "1"]
        with pytest.raises(UsageError, match="ranks 0 to 1"):
            engine.execute(folder, ["true"], rank=2, stdin=False, terminal=False)
        code, printed = at_terminal(tmp_path, "ssh", "entered", "--rank", "1", says=b"stty size; exit 6\n")
        assert code == 6, printed
        assert b"31 97" in printed
        ports: list[int] = []
        threading.Thread(
            target=lambda: engine.forward(folder, rank=1, remote=6006, local=0, ready=ports.append),
            daemon=True,
        ).start()
        server = threading.Thread(
            target=lambda: engine.execute(
                folder, [sys.executable, "-c", SERVER], rank=1, stdin=False, terminal=False
            ),
            daemon=True,
        )
        server.start()
        await_true(lambda: bool(ports), 60)
        await_true(lambda: size_of_page(ports[0]) == 77, 60)
        engine.stop(folder, grace_s=1)
        with pytest.raises(UsageError, match="no pod that runs now"):
            engine.execute(folder, ["true"], rank=0, stdin=False, terminal=False)
        disconnect()


def at_terminal(home: Path, *words: str, says: bytes) -> tuple[int, bytes]:
    """Run a command of cloudrec at a terminal of 97 columns, and type; return its code and what it showed."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (31, 97))
    before = termios.tcgetattr(theirs)
    with subprocess.Popen(
        [sys.executable, "-m", "cloudrec", *words],
        env={**os.environ, "CLOUDREC_HOME": str(home)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as process:
        printed = b""
        while not printed.rstrip().endswith((b"#", b"$")):  # the shell's prompt
            printed += os.read(ours, 1000)
        os.write(ours, says)
        code = process.wait(60)
    assert termios.tcgetattr(theirs) == before  # it is left as it was
    os.set_blocking(ours, False)
    with suppress(BlockingIOError):
        while data := os.read(ours, 1000):
            printed += data
    os.close(ours)
    os.close(theirs)
    return code, printed


def size_of_page(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/77", timeout=10) as page:
            return len(page.read())
    except OSError:
        return -1
