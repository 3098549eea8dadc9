"""A managed cluster on AWS whose keeper, nodes and API server fail at each of the keeper's calls.

A life of a run: it gets nodes, their zone is taken back, it moves, it succeeds, and its nodes are removed. In
life N the N-th call of its rounds is disturbed. Each life must end as an undisturbed one does.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.keeper import LINGER_S
from cloudrec.keeper.managed.leader import LASTS_S
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec_sandbox.core.client import RefusedError
from tests.contract.aws.support_trace import Trace
from tests.contract.aws.test_managed import (
    ROUND_S,
    TYPE,
    KeeperKilled,
    begun,
    on,
    record,
    submit,
)
from tests.tallies import Tally

__all__ = ["begun"]
RUNS_S = 400.0  # of the simulated trainer, from its start in another zone
MOST_ROUNDS = 90
OUTAGE_ROUNDS = 2  # after the one in which it begins
NODES = 2
CALLS = 34  # of the longest round
SAMPLES = (8, 19, 21)  # the lease; the intent; the request
AGREE_S = 2.0
OUTAGES = (
    {"kind": "drop"},
    {"kind": "error", "status": 503, "code": "ServiceUnavailable"},
)
LOSSES = ("vanish", "spot")  # without and with a notice
Kind = Literal["none", "keeper", "node", "api"]


class Counted:
    """A client of the keeper that reports each call before it is made."""

    def __init__(self, client: Any, on_call: Callable[[], None]) -> None:
        self._client, self._on_call = client, on_call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found) or name == "now_s":
            return found

        def call(*given: Any, **named: Any) -> Any:
            self._on_call()
            return found(*given, **named)

        return call


@dataclass
class Life:
    """The life of one run in a cluster that is used again.

    Attributes:
        trace: the cluster.
        brief: a client that does not wait long for the API server.
        kind: what is disturbed.
        at: the number of the call in a round at which it is disturbed.
        run: the run's name.
    """

    trace: Trace
    brief: Kube
    kind: Kind
    at: int
    run: str
    calls: int = 0  # of the present round
    longest: int = 0
    number: int = 0  # of the present round
    last: int = -1  # the round that was disturbed last
    outage: int = 0  # rounds for which the API server does not answer yet
    phase: str = ""
    hit: list[str] = field(default_factory=list)  # the phases that were disturbed
    most: Counter[str] = field(default_factory=Counter)  # machines at a time, by group
    overlapped: int = 0
    said: list[str] = field(default_factory=list)

    def live(self) -> None:
        """Live it to the end, and check it."""
        trace = self.trace
        trace.aws.control(capacity_trace=[])
        trace.server.control(bookkeeping={"stop_code": 75})
        submit(trace, self.run)
        self._until(lambda: bool(trace.machines()), "requested")
        self._until(lambda: len(on(trace, self.run)) == 1, "on nodes")
        self._until(lambda: len(on(trace, self.run)) == 1, "on nodes", least=2)
        (first,) = on(trace, self.run)
        zone = {"zone": f"us-east-1{first.split('-')[3]}", "instance_type": TYPE, "capacity": "spot"}
        # From the next minute on this zone has no spot nodes for a day.
        trace.aws.control(capacity_trace=[{**zone, "data": [1, 0], "gap_seconds": 60}])
        trace.server.control(bookkeeping={"stop_code": 75, "run_s": RUNS_S, "exit_code": 0})
        # Rounds of killed keepers are so far apart that it may have ended before it is seen there.
        self._until(lambda: bool(on(trace, self.run) - {first}) or self._has_succeeded(), "moved")
        self._until(self._has_succeeded, "succeeded")
        self._until(lambda: not record(trace).runs, "without a run")
        self._pass(LINGER_S)
        self._until(lambda: not trace.machines() and not record(trace).asked, "released")
        assert max(self.most.values()) <= NODES, self.most

    def _has_succeeded(self) -> bool:
        trace = self.trace
        job = trace.kube.get("Job", self.run, namespace=trace.namespace) or {}
        return job["status"].get("completedIndexes") == "0,1" and any(
            each["type"] == "Complete" and each["status"] == "True" for each in job["status"]["conditions"]
        )

    def _until(self, done: Callable[[], bool], what: str, *, least: int = 0) -> None:
        """Make rounds until something is so."""
        self.phase = what
        for count in range(MOST_ROUNDS):
            if not self.outage and count >= least and done():
                return
            self._round()
            self._pass(ROUND_S)
        lines = [line for line in self.said if "has cost" not in line and "no end" not in line]
        lines += [_shown(pod) for pod in self.trace.kube.list("Pod", namespace=self.trace.namespace)]
        lines += [_shown(node) for node in self.trace.nodes()]
        raise AssertionError(f"{self.kind} {self.at}: not {what}: " + "\n".join(lines[-40:]))

    def _round(self) -> None:
        self.number, self.calls = self.number + 1, 0
        if self.outage:
            self.outage, self.last = self.outage - 1, self.number
            if not self.outage:
                self.trace.server.control(faults=[])
        was_killed = False
        try:
            identity = f"{self.run}-{self.number if self.kind == 'keeper' else 0}"
            self.said += self.trace.round(self._around, identity=identity).splitlines()
        except KeeperKilled:
            was_killed = True
        except CloudrecError as error:
            if not self.outage:
                raise
            self.said.append(f"the round ended: {error.message}")
        self.longest = max(self.longest, self.calls)
        if was_killed or self.kind == "keeper":
            self._pass(LASTS_S + 1)  # until the lease of the process that died ends

    def _around(self, client: Any) -> Counted:
        return Counted(self.brief if isinstance(client, Kube) else client, self._disturb)

    def _disturb(self) -> None:
        """Disturb the call if it is due: the round after a disturbed one is left alone."""
        self.calls += 1
        if self.calls != self.at or self.outage or self.last >= self.number - 1:
            return
        if self.kind == "node" and (self.phase in self.hit or not self._lose_node()):
            return
        self.last = self.number
        self.hit.append(self.phase)
        if self.kind == "keeper":
            raise KeeperKilled
        if self.kind == "api":
            self.outage = 1 + OUTAGE_ROUNDS
            self.trace.server.control(faults=[{**OUTAGES[self.at % 2], "times": 10**6}])

    def _lose_node(self) -> bool:
        """Let a machine end; return whether there is one."""
        for node in self.trace.nodes():
            with suppress(RefusedError):  # it has ended, and its object is still there
                wish = {"node": node["metadata"]["name"], "how": LOSSES[len(self.hit) % 2]}
                self.trace.server.control(evict=wish)
                return True
        return False

    def _pass(self, seconds: float) -> None:
        """Let time pass, and count the machines."""
        trace = self.trace
        trace.passed += seconds
        trace.aws.control(advance_s=seconds)
        trace.server.control(advance_s=seconds)
        if not self.outage:
            self._agree()
        running = machines_by_group(trace)
        self.most |= running
        self.overlapped = max(self.overlapped, running.total())
        if not self.outage:  # no machine that a keeper has not written down before
            assert running.keys() <= record(trace).asked.keys()

    def _agree(self) -> None:
        """Wait until the nodes are AWS's; that of a lost machine stays for a while."""
        ends = time.monotonic() + AGREE_S
        while time.monotonic() < ends and len(self.trace.nodes()) != len(self.trace.machines()):
            time.sleep(0.02)


def _shown(found: dict[str, Any]) -> str:
    metadata, spec, status = (found[key] for key in ("metadata", "spec", "status"))
    where = {key: spec.get(key) for key in ("nodeName", "unschedulable", "taints") if spec.get(key)}
    labels = {
        key: value for key, value in metadata["labels"].items() if key.endswith(("/run", "/zone", "group"))
    }
    wrong = [each for each in status.get("conditions") or () if each["status"] == "False"]
    ends = metadata.get("deletionTimestamp")
    return f"{metadata['name']} {ends} {labels} {where} {status.get('phase')} {wrong}"


def machines_by_group(trace: Trace) -> Counter[str]:
    """The GPU machines of each node group, as EC2 has them."""
    rows = trace.aws.client("ec2").describe_instances(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    found = [each for row in rows["Reservations"] for each in row["Instances"]]
    return Counter(
        next(tag["Value"] for tag in each["Tags"] if tag["Key"] == "eks:nodegroup-name")
        for each in found
        if each["InstanceType"].startswith("p")
    )


@contextmanager
def brief_client(trace: Trace) -> Iterator[Kube]:
    """A client that gives an API server up that does not answer for half a second."""
    access = trace.application.provider("aws").access(trace.site.cluster)
    assert isinstance(access, KubernetesAccess)
    with Kube.connect(access.target, patience_s=0.5) as kube:
        yield kube


EVERY, WHOLE = range(1, CALLS + 1), [pytest.mark.soak, pytest.mark.timeout(7200)]


@pytest.mark.parametrize(
    ("kind", "calls"),
    [
        pytest.param("keeper", SAMPLES, id="sample", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
        *(pytest.param(kind, EVERY, id=f"every-{kind}", marks=WHOLE) for kind in ("keeper", "node", "api")),
    ],
)
def test_a_run_succeeds_and_leaves_nothing_whatever_fails_at_a_call(
    begun: Callable[..., Trace], kind: Kind, calls: Iterable[int], tally: Tally
) -> None:
    trace = begun()
    disturbed, longest = 0, 0
    with brief_client(trace) as brief:
        for at in calls:
            life = Life(trace, brief, kind, at, f"run-{at}")
            life.live()
            trace.kube.delete("Job", life.run, namespace=trace.namespace)
            disturbed, longest = disturbed + len(life.hit), max(longest, life.longest)
            print(
                f"{kind} at call {at}: {life.number} rounds, {len(life.hit)} times, "
                f"at most {life.overlapped} machines: {sorted(set(life.hit))}",
                flush=True,
            )
    tally(f"{kind}: {disturbed} times in {len(tuple(calls))} lives; the longest round has {longest} calls")
    assert disturbed >= 2 * len(tuple(calls))
    assert longest <= CALLS
    trace.site.down()
    assert [each for each in trace.aws.state() if "cloudrec-t" in each] == []
