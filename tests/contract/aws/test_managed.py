"""The keeper of a managed cluster on AWS: it gives runs their nodes, moves them, and removes the nodes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.keeper.managed.keeper import LINGER_S
from cloudrec.keeper.managed.leader import LASTS_S, Leader
from cloudrec.keeper.managed.record import MANAGED, ManagedRecord
from cloudrec.keeper.meter import CostLedger
from cloudrec.keeper.note import METER, NAME
from tests.contract.aws.support_trace import Trace, traced

TYPE = "p4d.24xlarge"
ROUND_S = 15.0
_LABELS = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/role": "trainer"}


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Makes a managed cluster with spot and on-demand candidates."""
    with traced(tmp_path, monkeypatch) as begin:

        def managed(**cluster: Any) -> Trace:
            trace = begin(managed=True, capacity="spot-first", instance_types=[TYPE], **cluster)
            # Pods run until they are ended, and then have a committed checkpoint.
            trace.server.control(bookkeeping={"stop_code": 75})
            return trace

        yield managed


def submit(trace: Trace, name: str, labels: Mapping[str, str] | None = None, *, nodes: int = 2) -> None:
    """Create the Job of a run, as the launcher torchrun does, for the stand-in's simulated pods."""
    own = {**_LABELS, "cloudrec/run": name}
    term = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": own}}
    one = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": own}}
    free = [
        {"matchExpressions": [{"key": "cloudrec.io/run", "operator": "In", "values": [name]}]},
        {"matchExpressions": [{"key": "cloudrec.io/run", "operator": "DoesNotExist"}]},
    ]
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": free}},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [one]},
    }
    container = {
        "name": "trainer",
        "image": "cloudrec:test",
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    trace.kube.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": trace.namespace,
                "labels": {**own, "cloudrec/nodes": str(nodes), **(labels or {})},
            },
            "spec": {
                "completions": nodes,
                "parallelism": nodes,
                "completionMode": "Indexed",
                "backoffLimitPerIndex": 3,
                "podFailurePolicy": {
                    "rules": [
                        {
                            "action": "Ignore",
                            "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                        },
                        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75, 143]}},
                    ]
                },
                "template": {
                    "metadata": {"labels": own},
                    "spec": {
                        "restartPolicy": "Never",
                        "terminationGracePeriodSeconds": 1,
                        "nodeSelector": {"cloudrec.io/nodes": "gpu"},
                        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
                        "affinity": affinity,
                        "containers": [container],
                    },
                },
            },
        }
    )


def record(trace: Trace) -> ManagedRecord:
    found = trace.kube.get("ConfigMap", NAME, namespace=trace.namespace) or {}
    return ManagedRecord.of(found["data"].get(MANAGED, ""))


def rounds(trace: Trace, done: Callable[[], bool], what: str, *, most: int = 80) -> list[str]:
    """Make rounds until something is so; return what they said."""
    said: list[str] = []
    for _ in range(most):
        said += trace.round().splitlines()
        if done():
            return said
        trace.advance(ROUND_S)
    said = [line for line in said if "has cost" not in line and "no end" not in line]
    said.append(str(record(trace)))
    for pod in trace.kube.list("Pod", namespace=trace.namespace):
        said.append(f"{pod['metadata']['name']} {pod['spec'].get('nodeName')} {pod['status']}")
    for node in trace.nodes():
        said.append(f"{node['metadata']['name']} {node['spec']} {node['status'].get('allocatable')}")
    raise AssertionError(f"not {what} after {most} rounds:\n" + "\n".join(said[-30:]))


def on(trace: Trace, run: str) -> set[str]:
    """Return the groups whose nodes have running pods of a run; empty unless all run."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in trace.nodes()}
    pods = trace.kube.list("Pod", namespace=trace.namespace, labels={"cloudrec/run": run})
    running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
    found = [nodes.get(pod["spec"].get("nodeName"), {}) for pod in running]
    groups = {str(labels.get("eks.amazonaws.com/nodegroup")) for labels in found if labels}
    return groups if len(running) == 2 and all(found) else set()


def group(zone: str, capacity: str = "spot") -> str:
    return f"gpu-p4d-24xlarge-{zone}-{'od' if capacity == 'on-demand' else capacity}"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_gets_nodes_and_they_end_after_it(begun: Callable[..., Trace]) -> None:
    trace = begun()
    assert trace.machines() == []
    rounds(trace, lambda: record(trace).at > 0, "a round", most=1)
    assert trace.machines() == []  # no run, no nodes
    submit(trace, "one")
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on the first candidate")
    assert len(trace.machines()) == 2  # the likely candidate alone was requested
    submit(trace, "two")
    rounds(trace, lambda: record(trace).queue == ("two",), "queued")
    assert (trace.kube.get("Job", "two", namespace=trace.namespace) or {})["spec"]["suspend"]
    check_queue(trace)
    trace.kube.delete("Job", "one", namespace=trace.namespace)
    rounds(trace, lambda: on(trace, "two") == {group("a")}, "the second one on the same nodes")
    trace.kube.delete("Job", "two", namespace=trace.namespace)
    rounds(trace, lambda: not record(trace).runs, "without a run")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")
    assert [event.text for event in record(trace).events if "released" in event.text]


def check_queue(trace: Trace) -> None:
    """`queue` and `status` show a run with nodes, another one that waits, and what the keeper did."""
    done = trace.command("queue")
    assert done.returncode == 0, done.stderr
    head, *rows = (line.split() for line in done.stdout.splitlines())
    assert head == ["CLUSTER", "TURN", "RUN", "STATE", "REASON"]
    assert [row[:5] for row in rows] == [
        ["t", "0", "one", "has", "nodes"],
        ["t", "1", "two", "waits", "for"],
    ]
    document = json.loads(trace.command("queue", "t", "-o", "json").stdout)
    reason = f"{group('a')} has the nodes"
    assert document["queue"] == [
        {"cluster": "t", "turn": 0, "run": "one", "state": "has nodes", "reason": reason},
        {"cluster": "t", "turn": 1, "run": "two", "state": "waits for its turn", "reason": None},
    ]
    refused = trace.command("queue", "other")
    assert refused.returncode == 2
    assert "there is no cluster 'other'" in refused.stderr
    shown = trace.command("status").stdout
    assert f"t: run one: {reason}; 1 waiting (cloudrec queue)" in shown
    assert f"  {group('a')}: 2 nodes" in shown
    events = trace.command("status", "t", "--events").stdout
    assert f"{group('a')}: 2 nodes are requested" in events


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_are_cordoned_for_a_round_before_their_pool_is_released(begun: Callable[..., Trace]) -> None:
    trace = begun()
    submit(trace, "one")
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on nodes")
    trace.kube.delete("Job", "one", namespace=trace.namespace)
    rounds(trace, lambda: not record(trace).runs, "without a run")
    trace.advance(LINGER_S + ROUND_S)  # the API server's clock has whole seconds
    trace.round()
    assert [node["spec"].get("unschedulable") for node in trace.nodes()] == [True, True]
    assert record(trace).asked == {group("a"): 2}  # a pod that had come before the cordon keeps its node
    submit(trace, "two")
    rounds(trace, lambda: on(trace, "two") == {group("a")}, "on the nodes that were about to go", most=20)
    assert not any(node["spec"].get("unschedulable") for node in trace.nodes())
    assert [event.text for event in record(trace).events if "released" in event.text] == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_moves_to_another_zone_when_its_nodes_are_taken_back(begun: Callable[..., Trace]) -> None:
    trace = begun()
    trace.aws.control(capacity={f"{TYPE}/us-east-1a/spot": 0})
    submit(trace, "one")
    said = rounds(trace, lambda: len(on(trace, "one")) == 1, "on another zone's nodes")
    first = on(trace, "one")
    assert first <= {group("b"), group("c")}, said
    # A zone without capacity is refused at once, and the others are requested: no wait for a time-out.
    (zone,) = {name.split("-")[3] for name in first}
    other = ({"b", "c"} - {zone}).pop()
    # From the next minute on this zone has no spot nodes for a day.
    gone = {"zone": f"us-east-1{zone}", "instance_type": TYPE, "capacity": "spot", "data": [1, 0]}
    trace.aws.control(capacity_trace=[{**gone, "gap_seconds": 60}])
    rounds(trace, lambda: on(trace, "one") == {group(other)}, "moved")
    events = {event.text: event.at for event in record(trace).events}
    lost = events[f"{group(zone)}: the cloud takes nodes back"]
    assert events[f"{group(other)}: 2 nodes are requested"] - lost <= ROUND_S
    rounds(trace, lambda: set(record(trace).asked) == {group(other)}, "the others released")
    assert len(trace.machines()) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_leaves_a_node_that_the_clouds_agent_reports_as_unhealthy(begun: Callable[..., Trace]) -> None:
    trace = begun()
    submit(trace, "one")
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on the first candidate")
    ill = trace.nodes()[0]
    # As the EKS node monitoring agent reports an XID error of a GPU.
    condition = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    conditions = [*ill["status"]["conditions"], condition]
    name = ill["metadata"]["name"]
    trace.kube.patch("Node", name, {"status": {"conditions": conditions}}, subresource="status")
    rounds(trace, lambda: len(on(trace, "one") - {group("a")}) == 1, "on other nodes")
    rounds(trace, lambda: len(record(trace).asked) == 1, "the first nodes released")
    assert name not in {node["metadata"]["name"] for node in trace.nodes()}
    assert len(trace.machines()) == 2
    assert any(name in event.text and "unhealthy" in event.text for event in record(trace).events)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_one_keeper_at_a_time_acts_and_a_price_that_no_pool_has_requests_nothing(
    begun: Callable[..., Trace],
) -> None:
    trace = begun()
    first, second = (Leader(kube=trace.kube, namespace=trace.namespace, identity=name) for name in "ab")
    assert first.leads()
    assert first.leads()  # it renews its lease
    assert not second.leads()
    before = record(trace)
    submit(trace, "one", {"cloudrec/max-price": "0.5"})
    assert "another keeper is at work" in trace.round()
    assert record(trace) == before
    trace.advance(LASTS_S + 1)
    assert second.leads()
    assert not first.leads()
    first.release()  # it no longer holds it
    assert not first.leads()
    second.release()
    assert "no pool has a known price of at most $0.5" in trace.round()
    trace.advance(ROUND_S)
    trace.round()
    assert record(trace).asked == {}
    assert trace.machines() == []


class KeeperKilled(BaseException):
    """The keeper's process has ended."""


class Killed:
    """A client whose process is killed before or after its changing call of a number."""

    CHANGES = frozenset({"patch", "delete", "resize"})

    def __init__(self, client: Any, calls: Iterator[int], *, at: int, is_after: bool) -> None:
        self._client, self._calls, self._at, self._is_after = client, calls, at, is_after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if name not in self.CHANGES:
            return found

        def call(*given: Any, **named: Any) -> Any:
            is_last = next(self._calls) == self._at
            if is_last and not self._is_after:
                raise KeeperKilled
            made = found(*given, **named)
            if is_last:
                raise KeeperKilled
            return made

        return call


def killed_round(trace: Trace, at: int, *, is_after: bool) -> bool:
    """Make a round by a new process that is killed at a call; return whether there was such a call."""
    calls = count(1)
    try:
        trace.round(
            lambda client: Killed(client, calls, at=at, is_after=is_after), identity=f"keeper-{at}-{is_after}"
        )
    except KeeperKilled:
        return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_keeper_that_is_killed_at_each_call_leaves_nothing_twice(begun: Callable[..., Trace]) -> None:
    trace = begun()
    trace.round()
    submit(trace, "one")
    most, kills = 0, 0
    for at in range(1, 10):
        for is_after in (False, True):
            kills += killed_round(trace, at, is_after=is_after)
            # Until the dead process's lease ends, the others do nothing.
            trace.advance(LASTS_S + 1)
            most = max(most, len(trace.machines()))
    assert kills > 8
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on the first candidate")
    rounds(trace, lambda: set(record(trace).asked) == {group("a")}, "one pool")
    assert most <= 2
    assert len(trace.machines()) == 2
    trace.kube.delete("Job", "one", namespace=trace.namespace)
    rounds(trace, lambda: not record(trace).runs, "without a run")
    trace.advance(LINGER_S)
    for at in range(1, 10):
        for is_after in (False, True):
            killed_round(trace, at, is_after=is_after)
            trace.advance(LASTS_S + 1)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_deadline_is_met_with_on_demand_nodes_and_spot_nodes_take_over(begun: Callable[..., Trace]) -> None:
    trace = begun()
    places = [f"{TYPE}/us-east-1{zone}/spot" for zone in "abc"]
    trace.aws.control(capacity=dict.fromkeys(places, 0))
    hours = {"cloudrec/deadline-s": str(30 * 3600), "cloudrec/work-s": str(24 * 3600)}
    submit(trace, "one", hours)
    rounds(trace, lambda: any(name.endswith("-spot") for name in record(trace).asked), "spot requested")
    trace.advance(2 * 3600.0)
    rounds(trace, lambda: on(trace, "one") == {group("a", "on-demand")}, "on on-demand nodes")
    assert "behind" in record(trace).runs["one"].reason
    trace.aws.control(capacity=dict.fromkeys(places))
    rounds(trace, lambda: {name[-5:] for name in on(trace, "one")} == {"-spot"}, "back on spot", most=120)
    rounds(trace, lambda: len(record(trace).asked) == 1, "on-demand nodes released")
    assert len(trace.machines()) == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_several_runs_have_separate_nodes_in_the_order_of_their_submission(
    begun: Callable[..., Trace],
) -> None:
    trace = begun(nodes=4)
    submit(trace, "one")
    rounds(trace, lambda: on(trace, "one") == {group("a")}, "on the first candidate")
    for name in ("two", "three"):
        submit(trace, name)
        trace.advance(1)  # of another second
    rounds(trace, lambda: len(on(trace, "two")) == 1, "the second one on other nodes")
    (second,) = on(trace, "two")
    assert second != group("a")
    assert on(trace, "one") == {group("a")}
    assert list(record(trace).runs) == ["one", "two"]
    assert record(trace).queue == ("three",)  # the cluster may have four nodes
    assert len(trace.machines()) == 4
    # A node is for the pods of one run: those of another one have no room there while its own restart.
    labels = {node["metadata"]["labels"].get("cloudrec.io/run") for node in trace.nodes()}
    assert labels == {"one", "two"}
    # The cloud takes the first run's nodes back; the second one keeps its own.
    gone = {"zone": "us-east-1a", "instance_type": TYPE, "capacity": "spot", "data": [1, 0]}
    trace.aws.control(capacity_trace=[{**gone, "gap_seconds": 60}])
    machines = {
        node["spec"]["providerID"] for node in trace.nodes() if group("a") not in str(node["metadata"])
    }
    rounds(trace, lambda: len(on(trace, "one") - {group("a"), second}) == 1, "moved beside the other run")
    assert on(trace, "two") == {second}
    assert machines <= {node["spec"]["providerID"] for node in trace.nodes()}
    rounds(trace, lambda: len(record(trace).asked) == 2, "a pool for each")
    trace.kube.delete("Job", "two", namespace=trace.namespace)
    rounds(trace, lambda: on(trace, "three") == {second}, "the third one on the nodes of the second")
    assert {run.name for run in app.keepers(trace.application)[0].runs if run.has_nodes} == {"one", "three"}
    for name in ("one", "three"):
        trace.kube.delete("Job", name, namespace=trace.namespace)
    rounds(trace, lambda: not record(trace).runs, "without a run")
    trace.advance(LINGER_S)
    rounds(trace, lambda: not trace.machines() and not record(trace).asked, "released")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_progress_is_what_the_run_prints_and_its_restart_and_saves_are_measured(
    begun: Callable[..., Trace],
) -> None:
    trace = begun()
    lines = [
        "[rank 0] step 900/1000  loss 0.1931  2,594 samples/s",
        "[rank 0] step 850: full checkpoint, 12.0 MB written in 7.50 s, training stopped for 31 ms",
    ]
    trace.server.control(bookkeeping={"stop_code": 75, "log": lines})
    submit(trace, "one", {"cloudrec/deadline-s": str(30 * 3600), "cloudrec/work-s": str(24 * 3600)})
    rounds(trace, lambda: record(trace).runs["one"].step is not None, "steps are seen")
    kept = record(trace).runs["one"]
    assert (kept.step, kept.steps, kept.saved, kept.save_s) == (900, 1000, 850, 7.5)
    assert kept.restart_s is not None
    assert 0 <= kept.restart_s < 600
    # All spot nodes go for hours. By time the run would be behind: a tenth of it is left, and it may wait.
    gone = [
        {
            "zone": f"us-east-1{zone}",
            "instance_type": TYPE,
            "capacity": "spot",
            "data": [1, 0],
            "gap_seconds": 60,
        }
        for zone in "abc"
    ]
    trace.aws.control(capacity_trace=gone)
    rounds(trace, lambda: not trace.machines(), "without nodes")
    trace.advance(3 * 3600.0)
    for _ in range(3):
        trace.round()
        trace.advance(ROUND_S)
    assert record(trace).runs["one"].done == 850 / 1000  # what is not saved is done again
    assert not [pool for pool in record(trace).asked if pool.endswith("-od")]
    assert trace.machines() == []


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("end", [{"ttl": "3h"}, {"budget_usd": 20.0}], ids=["ttl", "budget"])
def test_the_end_of_a_managed_cluster_needs_no_keeper(
    begun: Callable[..., Trace], end: dict[str, Any]
) -> None:
    trace = begun(**end)
    submit(trace, "one")
    rounds(trace, lambda: len(on(trace, "one")) == 1, "on nodes")
    assert len(trace.machines()) == 2
    for _ in range(2):
        trace.round()
        trace.advance(ROUND_S)
    for at in range(1, 4):  # the last keepers die
        killed_round(trace, at, is_after=True)
        trace.advance(LASTS_S + 1)
    # Two nodes of $8.78 an hour: the budget is spent in less than two hours.
    trace.advance(3 * 3600.0 + 300.0)
    assert trace.machines() == []  # the cloud itself has ended them
    trace.advance(60)
    trace.round()
    trace.advance(300)
    assert trace.machines() == []  # and no keeper brings them back, although the run waits
    kept = record(trace)
    assert (dict(kept.runs), dict(kept.asked), dict(kept.owner)) == ({}, {}, {})
    assert "its nodes are released" in kept.events[-1].text
    if budget := end.get("budget_usd"):
        # Nodes that vanished while no keeper ran are metered until the cloud has ended them.
        found = trace.kube.get("ConfigMap", NAME, namespace=trace.namespace) or {}
        assert CostLedger.of(found["data"][METER]).usd == pytest.approx(budget, rel=0.1)
    (before,) = app.costs(trace.application)
    trace.kube.patch("ConfigMap", NAME, {"data": {METER: None}}, namespace=trace.namespace)
    (after,) = app.costs(trace.application)  # the ledger is gone; this machine has read it
    assert after.ledger == before.ledger
    assert after.problem.startswith("as read last; not metered")
