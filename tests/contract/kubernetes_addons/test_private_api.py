"""The addresses by which a machine inside a cluster's network reaches its API server."""

from __future__ import annotations

from cloudrec.app.reach.private import _addresses_inside, _connects
from cloudrec.kubernetes.client.client import Kube
from tests.contract.kubernetes_addons.support import Server


def test_only_private_addresses_of_other_machines_count(kube: Kube, server: Server) -> None:
    endpoints = [{"addresses": [each]} for each in ("10.42.0.9", "52.9.9.9", "127.0.0.1", "172.20.1.1")]
    metadata = {
        "name": "kubernetes",
        "namespace": "default",
        "labels": {"kubernetes.io/service-name": "kubernetes"},
    }
    slices = {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata}
    port = {"name": "https", "port": 6443, "protocol": "TCP"}
    kube.create({**slices, "addressType": "IPv4", "endpoints": endpoints, "ports": [port]})
    assert list(_addresses_inside(server.target())) == [("10.42.0.9", 6443), ("172.20.1.1", 6443)]


def test_a_listening_port_is_reached_and_a_closed_one_is_not(server: Server) -> None:
    port = int(server.announcement["endpoints"]["kubernetes"].rpartition(":")[2])
    assert _connects("127.0.0.1", port)
    assert not _connects("127.0.0.1", 1)
