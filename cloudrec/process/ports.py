"""Free ports that a server started later can still bind."""

from __future__ import annotations

import secrets
import socket
from contextlib import ExitStack, suppress

from cloudrec.errors import PreflightError

# Linux gives clients and bind(0) the ports from 32768 to 60999 (ip_local_port_range in ip(7)). Below them, no
# other process takes a port by chance between this look and the server's start. NodePorts of Kubernetes begin
# at 30000, and Ray's workers end at 19999.
_FIRST = 20_000
_END = 30_000
_TRIES = 200


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return consecutive ports that no server of an address uses now.

    Args:
        count: the number of ports.
        host: the address that the servers will bind.

    Raises:
        PreflightError: no such ports are free.
    """
    for _ in range(_TRIES):
        first = _FIRST + secrets.randbelow(_END - _FIRST - count)
        with suppress(OSError), ExitStack() as stack:
            ports = list(range(first, first + count))
            for port in ports:
                stack.enter_context(socket.create_server((host, port)))
            return ports
    raise PreflightError(f"no port from {_FIRST} to {_END} is free on {host}", remedy="stop servers there")


def free_port(host: str = "127.0.0.1") -> int:
    """Return a port that no server of an address uses now.

    Args:
        host: the address that the server will bind.

    Raises:
        PreflightError: no port is free.
    """
    return free_ports(1, host)[0]
