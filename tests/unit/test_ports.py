"""Free ports are consecutive, and outside the range that the system gives to clients."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cloudrec.errors import PreflightError
from cloudrec.process.ports import free_port, free_ports


def test_ports_are_consecutive_and_can_be_bound() -> None:
    ports = free_ports(5)
    assert ports == list(range(ports[0], ports[0] + 5))
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_a_port_is_not_one_that_the_system_gives_to_clients() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    assert all(free_port() < first for _ in range(20))


def test_an_address_of_another_machine_is_reported() -> None:
    with pytest.raises(PreflightError, match=r"is free on 192\.0\.2\.1"):
        free_port("192.0.2.1")
