"""Pods' networks: each pod has its own address and ports, and one bridge connects a cluster's pods.

If this process may not make that (it is not root, or the kernel has no bridges), pods share this machine's
network, each with its own loopback address: then they can take each other's ports.
"""

from __future__ import annotations

import itertools
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudrec_sandbox.kubernetes.kubelet.cni.names import Addresses
from cloudrec_sandbox.kubernetes.kubelet.cni.netlink import Netlink
from cloudrec_sandbox.kubernetes.kubelet.cni.relay import Relay
from cloudrec_sandbox.kubernetes.kubelet.container import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

_SHARED_PREFIXES, _OWN_PREFIX = [f"127.{64 + number}" for number in range(32)], "10.244"
_CLUSTERS = itertools.count()  # of this process: without own networks, each has other loopback addresses
_BRIDGE, _CARD = "cloudrec0", "eth0"
_GATEWAY = f"{_OWN_PREFIX}.0.1"
_FORWARDING = Path("/proc/sys/net/ipv4/ip_forward")
_PROBERS = 4
_LISTENS = "0A"  # the state LISTEN in /proc/net/tcp
_HERE = re.compile(r"(?:127\.0\.0\.1|localhost):(\d{2,5})")


class Network:
    """The network of a cluster's pods."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._plugged: dict[str, int] = {}
        self._relay = Relay()
        self._wire = -1
        self._maker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="network")
        self.has_own = os.getuid() == 0 and self._maker.submit(self._make_wire).result()
        shared = _SHARED_PREFIXES[next(_CLUSTERS) % len(_SHARED_PREFIXES)]
        self.addresses = Addresses(_OWN_PREFIX if self.has_own else shared)
        self.pool = ThreadPoolExecutor(
            max_workers=_PROBERS, thread_name_prefix="probe", initializer=self._enter
        )

    def plug(self, uid: str, address: str, *, texts: Iterable[str], mtu: int) -> int | None:
        """Return the descriptor of a pod's network namespace, made at the first call; None if all share one.

        Args:
            uid: the pod's uid.
            address: the pod's address.
            texts: the pod's spec, variables and files. Services on this machine's loopback that they
                name can be reached from the pod by the same address.
            mtu: size of its largest packet, in bytes.
        """
        if not self.has_own:
            return None
        if uid not in self._plugged:
            named = {int(port) for text in texts for port in _HERE.findall(text)}
            ports = named & _served()
            self._plugged[uid] = self._maker.submit(self._make, address, ports, mtu).result()
        return self._plugged[uid]

    def namespace(self, uid: str) -> int | None:
        """Return the descriptor of a pod's network namespace; None if it shares this machine's."""
        return self._plugged.get(uid)

    def unplug(self, uid: str) -> None:
        """Close a pod's network; the kernel removes it with the last process in it."""
        namespace = self._plugged.pop(uid, None)
        if namespace is not None:
            self._relay.end(namespace)
            os.close(namespace)

    def close(self) -> None:
        """Close all networks."""
        self.pool.shutdown(wait=True, cancel_futures=True)
        for uid in list(self._plugged):
            self.unplug(uid)
        self._relay.close()
        self._maker.shutdown(wait=True)
        if self._wire >= 0:
            os.close(self._wire)

    def _make_wire(self) -> bool:
        try:
            # Only this thread's namespace changes: the process itself stays in the machine's network.
            kernel.unshare(kernel.NEW_NET)
            self._wire = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            link = Netlink()
            try:
                link.bring_up("lo")
                link.add_bridge(_BRIDGE)
                link.add_address(_BRIDGE, f"{_GATEWAY}/16")
                link.bring_up(_BRIDGE)
                # With forwarding, the bridge answers "no route" for unknown addresses; else it drops them.
                _FORWARDING.write_text("1", encoding="ascii")
            finally:
                link.close()
        except OSError:
            return False
        return True

    def _make(self, address: str, ports: Iterable[int], mtu: int) -> int:
        """Make a pod's namespace, in the thread whose own namespace nothing else uses."""
        name = f"pod{next(self._numbers)}"
        try:
            kernel.unshare(kernel.NEW_NET)
            namespace = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            link = Netlink()
            link.bring_up("lo")
            link.add_pair(_CARD, name, self._wire, mtu)
            link.add_address(_CARD, f"{address}/16")
            link.bring_up(_CARD)
            link.add_default_route(_GATEWAY)
            link.close()
            for port in ports:
                self._offer(namespace, port)
        finally:
            self._enter()
        link = Netlink()
        link.bring_up(name, master=_BRIDGE)
        link.close()
        return namespace

    def _offer(self, namespace: int, port: int) -> None:
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self._relay.offer(namespace, listener, port)

    def _enter(self, *_: Any) -> None:  # noqa: ANN401 - nothing
        if self._wire >= 0:
            kernel.enter(self._wire, kernel.NEW_NET)


def _served() -> set[int]:
    """Return the ports of this machine that have a listener."""
    found = set()
    for name in ("tcp", "tcp6"):
        with suppress(OSError):  # without IPv6
            for line in Path(f"/proc/net/{name}").read_text(encoding="ascii").splitlines()[1:]:
                _, place, _, state, *_ = line.split()
                if state == _LISTENS:
                    found.add(int(place.rpartition(":")[2], 16))
    return found
