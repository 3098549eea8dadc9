"""A cloud's stand-in and the Kubernetes stand-in as one: the second serves the clusters of the first.

`kubernetes` of /_control: the announcement of `python -m cloudrec_sandbox kubernetes`, or null. Of the file
that it names as its certificate authority, only certificates are read. From then on a cluster of the cloud
reports that server's address and authority. Its pools' machines are that server's nodes while they exist, and
that server takes the cloud's tokens. Each further cluster has a sibling of that server, made when it is
needed. A server without a cluster is used again: all objects of the previous one are deleted, and its
identity with them.

A machine that the cloud takes back is evicted there, and the machine of a node that was evicted there ends in
the cloud. Whether another machine comes is the cloud's decision.

`cluster_faults` of /_control: by cluster, as `kubernetes` names them, the `faults` of its API server, in the
format of that stand-in: `[{"kind": "drop", "times": 1000000}]` for a control plane that does not answer.

`address` of /_control: the public IPv4 address from which the cloud sees the user's machine. A change moves
the laptop to another network. A cloud whose API servers admit callers by address compares them with it.
"""

from __future__ import annotations

import base64
import ipaddress
import itertools
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cloudrec_sandbox.core.admission import LOOPBACK
from cloudrec_sandbox.core.client import Control, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from cloudrec_sandbox.core.book import Book, W
    from cloudrec_sandbox.core.world import World

_POLL_S = 0.2
_ASK_EVERY = 5  # looks
_TIMEOUT_S = 30.0
_MOST_BYTES = 1 << 20  # of a file with certificates
_DOCUMENTATION = "203.0.113.7"  # of a block that no machine has (RFC 5737)


@dataclass
class Server:
    """An API server of the Kubernetes stand-in.

    Attributes:
        server: its address.
        authority: its certificate authority's certificates, as PEM.
        control: its /_control.
        cluster: the key of the cluster that it serves; empty for none.
        faults: what was ordered as its cluster's faults.
    """

    server: str
    authority: str
    control: Control
    cluster: str = ""
    faults: Sequence[Mapping[str, Any]] = ()

    @property
    def host(self) -> str:
        """Return its name and port."""
        return urlsplit(self.server).netloc

    @property
    def authority_data(self) -> str:
        """Return the authority as a kubeconfig has it: base64 of PEM."""
        return base64.b64encode(self.authority.encode()).decode()


@dataclass
class Linked:
    """The servers that serve clusters; empty without a link."""

    servers: list[Server] = field(default_factory=list)
    look: Callable[[Any], Mapping[str, Picture]] | None = None
    lose: Callable[[Any, str], None] | None = None


@dataclass
class Caller:
    """The user's machine, as the cloud sees it."""

    address: str = _DOCUMENTATION


def is_admitted(world: World, blocks: Iterable[str]) -> bool:
    """Return whether the caller's address is in one of the blocks."""
    address = ipaddress.IPv4Address(world.state(Caller).address)
    return any(address in ipaddress.IPv4Network(block, strict=False) for block in blocks)


def declare(book: Book[W]) -> None:
    """Add `address` and `cluster_faults` to /_control."""
    book.setting("address", read=lambda world: world.state(Caller).address, write=_write_caller)
    book.setting("cluster_faults", read=_read_faults, write=_write_faults)


def _write_caller(world: World, value: object) -> None:
    world.state(Caller).address = str(ipaddress.IPv4Address(str(value)))


def _read_faults(world: World) -> dict[str, Any]:
    servers = [each for each in world.state(Linked).servers if each.cluster]
    return {each.cluster: each.faults for each in servers if each.faults}


def _write_faults(world: World, value: Mapping[str, Any] | None) -> None:
    servers = {each.cluster: each for each in world.state(Linked).servers if each.cluster}
    if unknown := sorted(set(value or {}) - set(servers)):
        raise ValueError(f"cluster_faults: no cluster {', '.join(unknown)}; there are: {', '.join(servers)}")
    for cluster, faults in (value or {}).items():
        servers[cluster].control.order(faults=faults or [])
        servers[cluster].faults = faults or []


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a cloud reports of its cluster.

    Attributes:
        cluster: an id that no later cluster has; empty if there is no cluster.
        nodes: its machines, in the format of the Kubernetes stand-in's `nodes`, each with an id as `machine`
            that no other machine has, also not a later one of its name.
        callers: the users that the cloud's tokens stand for in the cluster, in the format of its `tokens`.
            To reach the cloud's own API makes no one an administrator of a cluster.
        is_reachable: whether the API server answers the user's machine. Its requests are known by the cloud's
            tokens: those of pods have tokens of the API server.
        leaving: how machines are lost, by id: "spot" from the cloud's notice on, "vanish" without one. It
            also names machines that have ended.
        orders: further settings of the server that the cloud decides, such as the issuer of its tokens.
    """

    cluster: str = ""
    nodes: Sequence[Mapping[str, Any]] = field(default=())
    callers: Sequence[Mapping[str, Any]] = ()
    is_reachable: bool = True
    leaving: Mapping[str, str] = field(default_factory=dict)
    orders: Mapping[str, Any] = field(default_factory=dict)


def of(world: World, cluster: str) -> Server | None:
    """Return the server of a cluster, which gets one if it has none; None if there is no link.

    Args:
        world: the cloud's world, whose lock the caller has.
        cluster: the key of the cluster, as `look` has it.
    """
    linked = world.state(Linked)
    if not linked.servers or linked.look is None:
        return None
    existing = linked.look(world).keys() | {cluster}
    for server in linked.servers:
        if server.cluster not in existing:
            server.cluster, server.faults = "", ()
    by_key = {server.cluster: server for server in linked.servers}
    found = by_key.get(cluster) or by_key.get("") or _sibling(world, linked)
    found.cluster = cluster
    return found


def order(
    world: World,
    announcement: Mapping[str, Any] | None,
    *,
    look: Callable[[Any], Mapping[str, Picture]],
    lose: Callable[[Any, str], None],
) -> None:
    """Link clusters to the server of an announcement; ValueError if it is not an announcement.

    Args:
        world: the cloud's world.
        announcement: what the Kubernetes stand-in on this machine printed; None to end the link.
        look: returns a picture of each cluster, by a key that no other cluster has at the same time; an empty
            one for a cluster that is being created. Called under the world's lock.
        lose: ends a machine whose node the server has lost; called under the world's lock.
    """
    linked = world.state(Linked)
    linked.servers, linked.look, linked.lose = [], look, lose
    if not announcement:
        return
    _follow(world, linked, _server_of(announcement))
    for cluster, picture in look(world).items():
        if picture.cluster:
            of(world, cluster)


def _server_of(announcement: Mapping[str, Any]) -> Server:
    try:
        control = Control.of(announcement, timeout_s=_TIMEOUT_S)
        file = str(announcement["certificate_authority"])
    except (KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ValueError("kubernetes is not what `python -m cloudrec_sandbox kubernetes` printed") from error
    # The tokens of the announcement are sent there: never to another machine, and never in the clear.
    place = urlsplit(control.address)
    if place.scheme != "https" or place.hostname not in LOOPBACK:
        raise ValueError(f"kubernetes is at {control.address}; it must be https and on this machine")
    return Server(server=control.address, authority=_certificates(file), control=control)


def _sibling(world: World, linked: Linked) -> Server:
    """Return another server of the same process, for another cluster."""
    first = linked.servers[0].control
    settings = first.order(siblings=len(linked.servers))
    server = _server_of(settings["siblings"][len(linked.servers) - 1])
    _follow(world, linked, server)
    return server


def _follow(world: World, linked: Linked, server: Server) -> None:
    linked.servers.append(server)
    follower = _Follower(world, server.control)
    threading.Thread(target=follower.follow, name="linked", daemon=True).start()


def _certificates(name: str) -> str:
    """Return a file's certificates as PEM and nothing else from it; ValueError if it has none."""
    file = Path(name)
    try:
        if not file.is_file() or file.stat().st_size > _MOST_BYTES:
            raise ValueError(f"{name} is no file of at most {_MOST_BYTES} bytes")
        context = ssl.create_default_context(cadata=file.read_text(encoding="ascii"))
    except (OSError, UnicodeDecodeError) as error:  # ssl.SSLError is an OSError
        raise ValueError(f"{name} holds no certificate") from error
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in context.get_ca_certs(binary_form=True))


def read(world: World) -> dict[str, Any] | None:
    """Return the link as /_control returns it; None if there is none."""
    servers = world.state(Linked).servers
    if not servers:
        return None
    first = servers[0]
    return {
        "endpoints": {"kubernetes": first.server},
        "certificate_authority": first.authority,
        "clusters": {each.cluster: each.server for each in servers if each.cluster},
    }


class _Follower:
    """Keeps the nodes and tokens of a server equal to those of its cluster, while they are linked."""

    def __init__(self, world: World, control: Control) -> None:
        self._world = world
        self._control = control
        self._sent: Picture | None = None
        self._lost: set[str] = set()  # machines that the server has lost

    def follow(self) -> None:
        """Compare the cloud with the server every 0.2 s: the cloud changes with its clock, too."""
        for turn in itertools.count():
            with self._world.lock:
                linked = self._world.state(Linked)
                # By its address: a state that was taken up again has other objects.
                found = [each for each in linked.servers if each.server == self._control.address]
                if not found or linked.look is None:
                    return  # another order has taken this follower's place
                self._world.settle()
                picture = linked.look(self._world).get(found[0].cluster, Picture())
            if picture != self._sent and self._send(picture):
                self._sent = picture
            elif turn % _ASK_EVERY == 0 and picture.nodes:
                self._hear()
            time.sleep(_POLL_S)

    def _send(self, picture: Picture) -> bool:
        """Send the picture, after a reset if the cluster is another one; return its success."""
        tokens = [{**each, "reachable": picture.is_reachable} for each in picture.callers]
        wishes: dict[str, Any] = {**picture.orders, "nodes": [dict(node) for node in picture.nodes]}
        wishes["tokens"] = tokens
        if self._sent is None or self._sent.cluster != picture.cluster:
            empty = {"reset": True, "faults": [], "tokens": tokens, "nodes": []}
            if not self._post({**empty, **({"identity": picture.cluster} if picture.cluster else {})}):
                return False
        elif not self._evict(self._sent, picture):
            return False
        return self._post(wishes)

    def _evict(self, before: Picture, picture: Picture) -> bool:
        """Evict the nodes that the server has and the cloud takes back; return its success."""
        known = before.leaving.keys() | self._lost
        for node in before.nodes:
            how = picture.leaving.get(node["machine"])
            if how is None or node["machine"] in known:
                continue
            order = {"evict": {"node": node["name"], "how": how}}
            try:
                answered = self._post(order)
            except RefusedError:
                continue  # the server has lost it in the meantime
            if not answered:
                return False
        return True

    def _hear(self) -> None:
        """End the machines of nodes that were evicted at the server."""
        try:
            lost = set(self._control.ask("GET")["lost"])
        except (OSError, HTTPException, ValueError):
            return
        with self._world.lock:
            lose = self._world.state(Linked).lose
            for machine in sorted(lost - self._lost):
                if lose is not None:
                    lose(self._world, machine)
        self._lost = lost

    def _post(self, wishes: Mapping[str, Any]) -> bool:
        try:
            self._control.order(**wishes)
        except RefusedError:  # also a ValueError, but a defect: the thread ends with a traceback
            raise
        except (OSError, HTTPException, ValueError):
            return False  # the server has ended or has not started yet: the next look tries again
        return True
