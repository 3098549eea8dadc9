"""A cloud's stand-in and the Kubernetes stand-in as one: a cluster made in the one is served by the other.

`kubernetes` of /_control: what `python -m cloudrec.sandbox kubernetes` announced, or null. From then on a
cluster of the cloud tells that server's address and authority, its pools' machines are that server's nodes as
they come and go, and that server takes the cloud's tokens. One cluster at a time: with another one, all
objects of the one before are gone, and so is its identity.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.sandbox.world import World

_POLL_S = 0.2
_TIMEOUT_S = 30.0


@dataclass
class Linked:
    """The server that clusters are served by; an empty address for none."""

    server: str = ""
    authority: str = ""  # path of its certificate authority

    @property
    def host(self) -> str:
        """Its name, and its port."""
        return urlsplit(self.server).netloc

    @property
    def authority_data(self) -> str:
        """The authority as a kubeconfig has it."""
        return base64.b64encode(Path(self.authority).read_bytes()).decode()


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a cloud says of its cluster.

    Attributes:
        cluster: an id that no later cluster has; empty where there is none.
        nodes: its machines, as the Kubernetes stand-in takes them.
    """

    cluster: str = ""
    nodes: Sequence[Mapping[str, Any]] = field(default=())


def of(world: World) -> Linked | None:
    """The server that clusters of this cloud are served by, if any."""
    linked = world.state(Linked)
    return linked if linked.server else None


def order(
    world: World, announcement: Mapping[str, Any] | None, *, prefix: str, look: Callable[[Any], Picture]
) -> None:
    """Have clusters served by the server that announced itself so; ValueError for what is none.

    Args:
        world: the cloud's.
        announcement: what the Kubernetes stand-in printed; None to end the link.
        prefix: what the tokens begin with that the cloud gives to those who may enter a cluster.
        look: tells of the cluster, under the world's lock.
    """
    linked = world.state(Linked)
    linked.server = linked.authority = ""
    if not announcement:
        return
    try:
        server = str(announcement["endpoints"]["kubernetes"])
        authority = str(announcement["certificate_authority"])
    except (KeyError, TypeError) as error:
        raise ValueError("kubernetes is not what `python -m cloudrec.sandbox kubernetes` printed") from error
    linked.server, linked.authority = server, authority
    follower = _Follower(world, server, authority, prefix, look)
    threading.Thread(target=follower.follow, name="linked", daemon=True).start()


def read(world: World) -> dict[str, Any] | None:
    """The link as /_control tells it."""
    linked = of(world)
    if linked is None:
        return None
    return {"endpoints": {"kubernetes": linked.server}, "certificate_authority": linked.authority}


class _Follower:
    """Tells the Kubernetes stand-in what the cloud's cluster has, as long as the link stands."""

    def __init__(
        self, world: World, server: str, authority: str, prefix: str, look: Callable[[Any], Picture]
    ) -> None:
        self._world = world
        self._server = server
        self._tls = ssl.create_default_context(cafile=authority)
        self._tokens = [{"prefix": prefix, "user": "cloud-administrator", "groups": ["system:masters"]}]
        self._look = look
        self._told: Picture | None = None

    def follow(self) -> None:
        """Look again and again: what is in the cloud changes with the clock too."""
        while True:
            with self._world.lock:
                if self._world.state(Linked).server != self._server:
                    return
                self._world.settle()
                picture = self._look(self._world)
            if picture != self._told and self._tell(picture):
                self._told = picture
            time.sleep(_POLL_S)

    def _tell(self, picture: Picture) -> bool:
        """Have the nodes of this picture; with another cluster, all else anew. Tell whether it is so."""
        wishes: dict[str, Any] = {"nodes": [dict(node) for node in picture.nodes]}
        if self._told is None or self._told.cluster != picture.cluster:
            anew = {"reset": True, "tokens": self._tokens, "nodes": []}
            if not self._post({**anew, **({"identity": picture.cluster} if picture.cluster else {})}):
                return False
        return self._post(wishes)

    def _post(self, wishes: Mapping[str, Any]) -> bool:
        connection = HTTPSConnection(urlsplit(self._server).netloc, timeout=_TIMEOUT_S, context=self._tls)
        try:
            connection.request("POST", "/_control", json.dumps(wishes))
            answer = connection.getresponse()
            told = answer.read()
        except (OSError, HTTPException):
            return False  # it has ended, or not begun: later
        finally:
            connection.close()
        if answer.status != 200:  # noqa: PLR2004 - HTTP's own
            raise AssertionError(told.decode())
        return True
