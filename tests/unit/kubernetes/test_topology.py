"""The order of nodes by the network's topology, and torch's rendezvous in this order."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from cloudrec.kubernetes import topology
from cloudrec.launchers.local import ordered
from cloudrec.launchers.local.ordered import OrderedAddress
from cloudrec.process.ports import free_port
from cloudrec.providers.base.facts import all_facts, topology_of

LABELS = ("block", "rack")


def _node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}}


def test_nodes_that_share_a_part_of_the_network_are_neighbours() -> None:
    racks = [("a", "b1", "r1"), ("b", "b2", "r3"), ("c", "b1", "r2"), ("d", "b2", "r3"), ("e", "b1", "r1")]
    places = topology.table([_node(name, block=block, rack=rack) for name, block, rack in racks], LABELS)
    order = sorted(places, key=lambda name: topology.key(places, name, name))
    where = {name: (block, rack) for name, block, rack in racks}
    for parts in (1, 2):
        groups = [where[name][:parts] for name in order]
        assert [
            group for at, group in enumerate(groups) if group in groups[:at] and groups[at - 1] != group
        ] == []


def test_an_nvlink_domain_is_inside_the_narrowest_part_and_nodes_without_a_place_come_last() -> None:
    nodes = [
        _node("a", block="b", **{topology.NVLINK: "domain.1"}),
        _node("b", block="b", **{topology.NVLINK: "domain.2"}),
        _node("c", block="b", **{topology.NVLINK: "domain.1"}),
        _node("d"),
    ]
    places = topology.table(nodes, ("block",))
    assert set(places) == {"a", "b", "c"}
    assert places["a"] == places["c"] != places["b"]
    hosts = {"d": "run-0", "a": "run-1", "b": "run-2", "c": "run-10"}
    order = sorted(hosts, key=lambda node: topology.key(places, node, hosts[node]))
    assert order[-1] == "d"
    assert abs(order.index("a") - order.index("c")) == 1
    assert order.index("a") < order.index("c"), "run-1 comes before run-10"


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"nodes": 1}', '{"labels": []}'])
def test_a_damaged_table_orders_by_name_and_ends_no_run(text: str) -> None:
    assert topology.read(text) == {}


def test_labels_are_those_of_the_clouds_facts_that_nodes_have() -> None:
    known = [label for facts in all_facts() for label in facts.topology]
    assert len(known) == len(set(known)) > 0
    assert topology_of([_node("a", **{known[0]: "x"}), _node("b", other="y")]) == (known[0],)
    assert topology_of([_node("a")]) == ()


def test_an_address_is_sorted_by_its_key_here_and_on_another_node() -> None:
    addresses = [OrderedAddress("a.example", "2"), OrderedAddress("b.example", "1"), "c.example"]
    assert sorted(addresses) == ["c.example", "b.example", "a.example"]
    copy = pickle.loads(pickle.dumps(addresses[0]))  # noqa: S301 - as torch does with the rendezvous' state
    assert (copy, copy.key, type(copy), hash(copy)) == ("a.example", "2", OrderedAddress, hash("a.example"))


def test_only_torchruns_own_backend_flag_is_changed() -> None:
    words = ["--rdzv-backend", "c10d", "--", "trainer", "--rdzv-backend", "c10d"]
    assert ordered.with_backend(words) == ["--rdzv-backend", ordered.BACKEND, *words[2:]]
    assert ordered.with_backend(["--rdzv-backend", "loopback"]) == ["--rdzv-backend", "loopback"]


def test_torchs_rendezvous_numbers_the_nodes_by_their_keys() -> None:
    from torch.distributed.elastic.rendezvous import RendezvousParameters  # noqa: PLC0415 - seconds of imports
    from torch.distributed.elastic.rendezvous.api import RendezvousHandlerRegistry  # noqa: PLC0415 - as above

    keys = {"127.0.0.1": "c", "127.0.0.2": "a", "127.0.0.3": "b"}
    port = free_port("127.0.0.1")
    kept: list[object] = []  # the host's store ends with its last reference: the others still read it then

    def joined(address: str) -> int:
        parameters = RendezvousParameters(
            backend=ordered.BACKEND,
            endpoint=f"127.0.0.1:{port}",
            run_id="r",
            min_nodes=3,
            max_nodes=3,
            local_addr=address,
            is_host=address == "127.0.0.1",
            join_timeout=60,
        )
        registry = RendezvousHandlerRegistry()
        registry.register(ordered.BACKEND, partial(ordered.create, key=keys[address]))
        handler = registry.create_handler(parameters)
        info = handler.next_rendezvous()
        kept.extend((handler, info))
        assert info.bootstrap_store_info.master_addr == "127.0.0.2", "an address, not a key"
        info.store.set_timeout(timedelta(seconds=60))
        info.store.set(f"done-{info.rank}", "1")
        info.store.wait([f"done-{rank}" for rank in range(3)])
        return int(info.rank)

    with ThreadPoolExecutor() as pool:
        ranks = dict(zip(keys, pool.map(joined, keys), strict=True))
    assert sorted(ranks, key=lambda address: ranks[address]) == sorted(
        keys, key=lambda address: keys[address]
    )
