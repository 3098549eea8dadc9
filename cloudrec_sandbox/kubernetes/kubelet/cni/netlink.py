"""The parts of the kernel's netlink that pods' networks need: links, their state, their addresses."""

from __future__ import annotations

import os
import socket
import struct
from ipaddress import IPv4Address, IPv4Interface

_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 20, 24
_ERROR = 2
_REQUEST, _ACKNOWLEDGE, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_NAME, _MTU, _MASTER, _INFO, _NAMESPACE = 3, 4, 10, 18, 28  # attributes of a link
_KIND, _DATA, _PEER = 1, 2, 1  # attributes of its kind
_ADDRESS, _LOCAL = 1, 2
_VIA = 5  # attribute of a route
_MAIN_TABLE, _STATIC, _UNIVERSE, _UNICAST = 254, 4, 0, 1
_UP = 1
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_INTERFACE = struct.Struct("=BBBBI")


class Netlink:
    """A netlink socket for the network namespace in which it was opened."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
        self._socket.bind((0, 0))

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """Make a bridge."""
        info = _attribute(_INFO, _attribute(_KIND, b"bridge"))
        self._ask(_NEW_LINK, _EXCLUSIVE | _CREATE, _link() + _text(_NAME, name) + info)

    def add_pair(self, name: str, peer: str, namespace: int, mtu: int) -> None:
        """Make a veth pair: one end `name` here, the other `peer` in the namespace of a descriptor."""
        size = _attribute(_MTU, struct.pack("=I", mtu))
        far = _link() + _text(_NAME, peer) + size + _attribute(_NAMESPACE, struct.pack("=I", namespace))
        info = _attribute(_INFO, _attribute(_KIND, b"veth") + _attribute(_DATA, _attribute(_PEER, far)))
        self._ask(_NEW_LINK, _EXCLUSIVE | _CREATE, _link() + _text(_NAME, name) + size + info)

    def bring_up(self, name: str, *, master: str = "") -> None:
        """Bring a link up, as a port of a bridge if one is named."""
        index = socket.if_nametoindex(name)
        port = _attribute(_MASTER, struct.pack("=I", socket.if_nametoindex(master))) if master else b""
        self._ask(_NEW_LINK, 0, _link(index, flags=_UP) + port)

    def add_address(self, name: str, address: str) -> None:
        """Give a link an address: "10.0.0.1/16"."""
        interface = IPv4Interface(address)
        index = socket.if_nametoindex(name)
        head = _INTERFACE.pack(socket.AF_INET, interface.network.prefixlen, 0, 0, index)
        packed = interface.ip.packed
        body = head + _attribute(_LOCAL, packed) + _attribute(_ADDRESS, packed)
        self._ask(_NEW_ADDRESS, _EXCLUSIVE | _CREATE, body)

    def add_default_route(self, gateway: str) -> None:
        """Route everything else through a gateway."""
        head = _ROUTE.pack(socket.AF_INET, 0, 0, 0, _MAIN_TABLE, _STATIC, _UNIVERSE, _UNICAST, 0)
        body = head + _attribute(_VIA, IPv4Address(gateway).packed)
        self._ask(_NEW_ROUTE, _EXCLUSIVE | _CREATE, body)

    def _ask(self, kind: int, flags: int, body: bytes) -> None:
        size = _HEADER.size + len(body)
        self._socket.send(_HEADER.pack(size, kind, flags | _REQUEST | _ACKNOWLEDGE, 1, 0) + body)
        reply = self._socket.recv(65536)
        if _HEADER.unpack_from(reply)[1] == _ERROR:
            (code,) = struct.unpack_from("=i", reply, _HEADER.size)
            if code:
                raise OSError(-code, os.strerror(-code))


def _link(index: int = 0, *, flags: int = 0) -> bytes:
    return _LINK.pack(socket.AF_UNSPEC, 0, index, flags, flags)


def _text(kind: int, text: str) -> bytes:
    return _attribute(kind, text.encode() + b"\0")


def _attribute(kind: int, data: bytes) -> bytes:
    size = 4 + len(data)
    return struct.pack("=HH", size, kind) + data + b"\0" * (-size % 4)
