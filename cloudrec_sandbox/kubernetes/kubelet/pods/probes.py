"""Startup, liveness and readiness probes: commands in a container, connections to it."""

from __future__ import annotations

import http.client
import socket
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import ThreadPoolExecutor

    from cloudrec_sandbox.kubernetes.kubelet.pods.instance import Instance
    from cloudrec_sandbox.kubernetes.kubelet.processes.loop import Loop
    from cloudrec_sandbox.kubernetes.kubelet.processes.process import Running

_KINDS = ("startup", "liveness", "readiness")
_PERIOD_S, _FAILURES = 10, 3
_TERM, _KILL = 15, 9
_LEAST_BAD_STATUS, _LEAST_GOOD_STATUS = 400, 200


class Probes:
    """The probes of one pod's containers."""

    def __init__(self, loop: Loop, pool: ThreadPoolExecutor) -> None:
        self._loop = loop
        self._pool = pool
        self._is_closed = False

    def close(self) -> None:
        """Stop probing."""
        self._is_closed = True

    def watch(self, instance: Instance, address: str) -> None:
        """Start with a container that has just started; one without probes is ready."""
        wishes = {kind: instance.container.get(f"{kind}Probe") for kind in _KINDS}
        instance.has_started = not wishes["startup"]
        instance.is_ready = instance.has_started and not wishes["readiness"]
        begun = instance.running
        if begun is None:
            return
        for kind, wish in wishes.items():
            if wish:
                _Probe(self, instance, begun=begun, kind=kind, wish=wish, address=address).wait(
                    wish.get("initialDelaySeconds") or 0
                )

    def later(self, seconds: float, step: Callable[[], None]) -> None:
        """Run a step after some seconds, unless the probes have ended by then."""
        self._loop.after(seconds, lambda: None if self._is_closed else step())

    def ask(self, check: Callable[[], str], done: Callable[[str], None]) -> None:
        """Run a check in another thread, which delays nothing; `done` gets the problem, or ""."""
        self._pool.submit(lambda: self._answer(check(), done))

    def _answer(self, problem: str, done: Callable[[str], None]) -> None:
        self._loop.soon(lambda: None if self._is_closed else done(problem))


class _Probe:
    def __init__(
        self,
        probes: Probes,
        instance: Instance,
        *,
        begun: Running,
        kind: str,
        wish: Mapping[str, Any],
        address: str,
    ) -> None:
        self._probes = probes
        self._instance = instance
        self._begun = begun
        self._kind = kind
        self._wish = wish
        self._address = address
        self._failures = 0

    def wait(self, seconds: float) -> None:
        self._probes.later(seconds, self._probe)

    def _probe(self) -> None:
        # The container has been restarted: its new instance has its own probes.
        if self._instance.running is not self._begun:
            return
        # Container in the API model: no other probe runs before the startup probe has succeeded.
        if self._kind != "startup" and not self._instance.has_started:
            self.wait(1)
            return
        if "exec" in self._wish:
            self._begun.execute(self._wish["exec"]["command"], self._executed)
        else:
            self._probes.ask(
                partial(_connect, self._wish, self._instance.container, self._address), self._judge
            )

    def _executed(self, code: int, said: str) -> None:
        self._judge(said.strip() or f"exit code {code}" if code else "")

    def _judge(self, problem: str) -> None:
        instance = self._instance
        if instance.running is not self._begun:
            return
        # Probe in the API model: a success resets the count, so only failures in a row matter.
        self._failures = self._failures + 1 if problem else 0
        if problem:
            text = f"{self._kind.capitalize()} probe failed: {problem}"
            instance.worker.record(
                "Unhealthy", text, warning=True, field=f"spec.containers{{{instance.name}}}"
            )
        if self._failures >= (self._wish.get("failureThreshold") or _FAILURES):
            self._fail()
        elif not problem:
            self._succeed()
        if self._kind != "startup" or not instance.has_started:
            self.wait(self._wish.get("periodSeconds") or _PERIOD_S)

    def _succeed(self) -> None:
        instance = self._instance
        if self._kind == "startup":
            instance.has_started = True
            instance.is_ready = "readinessProbe" not in instance.container
        elif self._kind == "readiness":
            instance.is_ready = True
        instance.worker.changed()

    def _fail(self) -> None:
        instance, begun = self._instance, self._begun
        if self._kind == "readiness":
            instance.is_ready = False
            instance.worker.changed()
            return
        # A failed startup or liveness probe ends the container; the restart policy starts it again.
        text = f"Container {instance.name} failed {self._kind} probe, will be restarted"
        instance.worker.record("Killing", text, field=f"spec.containers{{{instance.name}}}")
        begun.signal(_TERM)
        grace = instance.worker.pod["spec"].get("terminationGracePeriodSeconds", 30)
        self._probes.later(grace, lambda: begun.signal(_KILL) if instance.running is begun else None)
        self._failures = 0


def _connect(wish: Mapping[str, Any], container: Mapping[str, Any], address: str) -> str:
    """Connect as the probe requires; return the problem, or ""."""
    kind = next((each for each in ("httpGet", "tcpSocket") if each in wish), "")
    if not kind:
        return ""
    target = wish[kind]
    port = target["port"]
    if isinstance(port, str):
        named = {each.get("name"): each["containerPort"] for each in container.get("ports") or ()}
        port = named.get(port, 0)
    timeout = wish.get("timeoutSeconds") or 1
    try:
        if kind == "tcpSocket":
            with socket.create_connection((target.get("host") or address, port), timeout):
                return ""
        connection = http.client.HTTPConnection(target.get("host") or address, port, timeout=timeout)
        connection.request("GET", target.get("path") or "/")
        status = connection.getresponse().status
        connection.close()
    except (OSError, http.client.HTTPException) as error:
        return f"{error}"
    bad = not _LEAST_GOOD_STATUS <= status < _LEAST_BAD_STATUS
    return f"HTTP probe failed with statuscode: {status}" if bad else ""
