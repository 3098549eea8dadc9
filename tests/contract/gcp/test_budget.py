"""A budget ends at the money: nodes that are missing cost nothing, and Google Cloud's end moves with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.app.reach.runs import refuse_ended
from cloudrec.app.records import known_clusters
from cloudrec.home import Home
from cloudrec.keeper.guard import Guard, halting, moving, pricing
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.gcp.api import labels
from cloudrec.providers.gcp.provider import GcpProvider
from cloudrec.spec.models import ClusterSpec
from tests.conformance.support_clouds import Cloud, stand_in, until
from tests.contract.gcp.support import fresh
from tests.contract.support_time import same_time, take_over_guard
from tests.sandbox.gcp.support import PROJECT, REGION, Gcp, refused

ROUND_S = 300.0  # the guard's rounds here; in a cluster they are two minutes apart
HOUR = 3600.0
NODES = 2
LONGEST = 60 * HOUR
ME = f"serviceAccount:deployer@{PROJECT}.iam.gserviceaccount.com"
PARENT = f"projects/{PROJECT}/locations/{REGION}"
EXPIRES = "cloudrec-expires"
ROLE = Path(__file__).parents[3] / "infra" / "gcp" / "guard-role.yaml"


@dataclass
class Trace:
    """A cluster with a budget on linked stand-ins, whose time passes by order."""

    gcp: Gcp
    server: Cloud
    home: Home
    cluster: ClusterSpec
    kube: Kube
    namespace: str
    path: str  # of the cluster
    ahead: float  # seconds by which the stand-ins' clocks were ahead of the real time at the beginning
    passed: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead + self.passed)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.home, environment=self.gcp.env, now=self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass in both stand-ins, and wait until the nodes are those that Google Cloud has."""
        self.passed += seconds
        self.gcp.advance(seconds)
        self.server.control(advance_s=seconds)
        until(lambda: len(self.nodes()) == self.machines(), "the nodes are Google Cloud's")

    def machines(self) -> int:
        return len([entry for entry in self.gcp.state("compute:instances:") if "-gpu-" in entry])

    def nodes(self) -> list[dict[str, Any]]:
        return self.kube.list("Node", labels="cloudrec.io/nodes=gpu")

    def round(self) -> str:
        said: list[str] = []
        environment = {**self.gcp.env, **self.guard_environment()}
        guard = Guard(
            kube=self.kube,
            namespace=self.namespace,
            halt=halting(self.home.root, environment),
            pricer=pricing(self.home.root, environment),
            mover=moving(self.home.root, environment),
            now=self.now,
            report=said.append,
        )
        with self.as_guard():
            guard.round()
        return "\n".join(said)

    def guard_environment(self) -> dict[str, str]:
        return {
            "GOOGLE_CLOUD_PROJECT": PROJECT,
            "GOOGLE_CLOUD_REGION": REGION,
            "CLOUDREC_GKE_CLUSTER": self.path,
        }

    @contextmanager
    def as_guard(self) -> Iterator[None]:
        """Have the guard's role, under its condition, and no other one in the project.

        A role without a permission to change a cluster is the caller's way into the cluster's API: the guard
        has Kubernetes' own.
        """
        before = self.policy()
        (guard,) = [
            each
            for each in before["bindings"]
            if each.get("condition", {}).get("title", "").startswith("cloudrec guard")
        ]
        others = [
            {**each, "members": [who for who in each["members"] if who != ME]} for each in before["bindings"]
        ]
        mine = [{**guard, "members": [ME]}, {"role": "roles/container.developer", "members": [ME]}]
        self.write_policy([each for each in others if each["members"]] + mine)
        try:
            yield
        finally:
            self.gcp.control(enforce_iam=False)
            self.write_policy(before["bindings"])
            self.gcp.control(enforce_iam=True)

    def policy(self) -> dict[str, Any]:
        options = {"options": {"requestedPolicyVersion": 3}}
        found: dict[str, Any] = self.gcp.rest("POST", f"/v3/projects/{PROJECT}:getIamPolicy", options)[1]
        return found

    def write_policy(self, bindings: list[dict[str, Any]]) -> None:
        wanted = {**self.policy(), "version": 3, "bindings": bindings}
        answer = self.gcp.rest("POST", f"/v3/projects/{PROJECT}:setIamPolicy", {"policy": wanted})
        assert answer[0] == 200, answer
        self.passed += 1
        self.gcp.advance(1)  # until it counts

    def scale(self, count: int) -> None:
        """Let the pool have this many nodes, as Google does when it takes them back and has them again."""
        (name,) = [
            pool.name
            for pool in self.gcp.gke.list_node_pools(parent=self.path).node_pools
            if pool.name.startswith("gpu-")
        ]
        wish = {"name": f"{self.path}/nodePools/{name}", "node_count": count}
        until(self._is_idle, "GKE changes nothing")
        self.gcp.gke.set_node_pool_size(request=wish)
        until(lambda: self._has(count), f"{count} nodes")

    def _has(self, count: int) -> bool:
        self.advance(1)  # nodes register soon after their start, not after a whole round
        return self.machines() == count

    def _is_idle(self) -> bool:
        self.advance(10)
        return bool(self.gcp.gke.get_cluster(name=self.path).status.name == "RUNNING")

    def billed(self) -> float:
        return float(self.gcp.ask("GET", "/bill")["usd"])

    def end_in_label(self) -> str:
        row = self.gcp.gke.get_cluster(name=self.path)
        return labels.decode({EXPIRES: row.resource_labels[EXPIRES]})[EXPIRES]


def check_commands(trace: Trace) -> None:
    """Commands know the moved end: the one in the journal has passed."""
    application = trace.application
    (known,) = known_clusters(application, name=trace.cluster.title)
    assert datetime.fromisoformat(known.cluster.expires or "") < trace.now()
    (view,) = app.clusters(application)
    assert view.expires == trace.end_in_label()
    assert view.spent_usd == pytest.approx(trace.billed(), rel=0.05)
    assert app.expired(application, "gcp") == []
    refuse_ended(application, known.cluster, application.provider("gcp").access(known.cluster))
    plan = app.up(
        application,
        app.recorded(application, known.cluster).model_copy(update={"access": "auto"}),
        decide=lambda _plan: True,
    )
    assert {action.key for action in plan.changes} <= {"gpu-nodes/t"}  # they are missing
    (later,) = known_clusters(application, name=trace.cluster.title)
    assert later.cluster.expires == view.expires
    assert later.cluster.end_limit is None


def check_permissions(trace: Trace) -> None:
    """The guard may change the label, and neither the job nor the workflow."""
    (job,) = trace.gcp.rest("GET", f"/v1/{PARENT}/jobs")[1]["jobs"]
    (workflow,) = trace.gcp.rest("GET", f"/v1/{PARENT}/workflows")[1]["workflows"]
    with trace.as_guard():
        for method, path, permission in (
            ("PATCH", f"{job['name']}?updateMask=schedule", "cloudscheduler.jobs.update"),
            ("DELETE", job["name"], "cloudscheduler.jobs.delete"),
            ("PATCH", f"{workflow['name']}?updateMask=sourceContents", "workflows.workflows.update"),
            ("DELETE", workflow["name"], "workflows.workflows.delete"),
            ("POST", f"{workflow['name']}/executions", "workflows.executions.create"),
        ):
            status, answer = trace.gcp.rest(method, f"/v1/{path}", None if method == "DELETE" else {})
            assert (status, permission in answer["error"]["message"]) == (403, True), answer
        with refused("PERMISSION_DENIED", "container.clusters.delete"):
            trace.gcp.gke.delete_cluster(name=trace.path)


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Makes a cluster with a budget; its time is virtual from its creation on."""
    with stand_in("kubernetes") as server, stand_in("gcp") as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        gcp = Gcp(cloud.env)
        fresh(gcp, enforce_iam=True)
        server.control(speed=1)
        gcp.env["CLOUDREC_SANDBOX_SPEED"] = "1"
        gcp.control(kubernetes=server._announcement, speed=1, real_times=False, durations={"*": 0.2})
        gcp.env.pop("CLOUDREC_CLUSTER_ADDONS", None)
        wish = {"roleId": "cloudrecGuard", "role": yaml.safe_load(ROLE.read_text())}
        assert gcp.rest("POST", f"/v1/projects/{PROJECT}/roles", wish)[0] == 200
        made: list[Kube] = []

        def begin(**cluster: Any) -> Trace:
            given = {"name": "t", "provider": "gcp", "owner": "tester", "nodes": NODES, "access": "auto"}
            spec = ClusterSpec.model_validate({**given, "zones": ["us-central1-a"], **cluster})
            home = Home(root=tmp_path / "home")
            gcp.control(bill=True)
            ahead = same_time(gcp, server)
            application = AppContext(
                home=home, environment=gcp.env, now=lambda: datetime.now(UTC) + timedelta(seconds=ahead)
            )
            app.up(application, spec, decide=lambda _plan: True)
            provider = application.provider("gcp")
            assert isinstance(provider, GcpProvider)
            access = provider.access(spec)
            assert isinstance(access, KubernetesAccess)
            kube = Kube.connect(access.target).__enter__()
            made.append(kube)
            path = provider.layout(spec).cluster_path
            trace = Trace(gcp, server, home, spec, kube, access.target.namespace, path, ahead)
            take_over_guard(server, kube, access.target.namespace)
            trace.advance(60)
            return trace

        yield begin
        for kube in made:
            kube.__exit__(None, None, None)
        gcp.close()


def at(trace: Trace, events: dict[float, Callable[[], None]]) -> float:
    """Make the guard's rounds and what happens at certain hours, until no event and no GPU node is left."""
    waiting = sorted(events.items())
    while trace.passed < LONGEST:
        trace.advance(ROUND_S)
        while waiting and trace.passed >= waiting[0][0] * HOUR:
            waiting.pop(0)[1]()
        said = trace.round()
        assert "the cloud still ends" not in said, said
        if not waiting and "its nodes go" in said:
            trace.advance(60)
        if not waiting and not trace.machines():
            billed, budget = trace.billed(), trace.cluster.budget_usd
            print(f"budget ${budget:g}: bill ${billed:.2f} after {trace.passed / HOUR:.2f} h")
            return billed
    raise AssertionError(f"{trace.passed / HOUR:.1f} h, ${trace.billed():.2f}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stock_out_costs_nothing_and_the_budget_lasts_longer(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=200.0, instance_types=["a2-highgpu-8g"], capacity="on-demand")
    before = trace.end_in_label()
    # $59/h for two nodes; half of them are missing for an hour, then all of them until `up`.
    events = {
        1.0: lambda: trace.scale(1),
        2.0: lambda: trace.scale(0),
        5.0: lambda: check_commands(trace),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(200.0, rel=0.05)
    assert trace.passed > 6.5 * HOUR  # without the stock-out it is 3.4 hours
    assert trace.end_in_label() > before


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_spot_nodes_are_metered_at_the_price_of_the_last_up(begun: Callable[..., Trace]) -> None:
    """Google's spot prices hold for a month, so the guard needs no permission to read them."""
    trace = begun(budget_usd=100.0, capacity="spot", managed=False, instance_types=["a2-highgpu-8g"])
    assert "the spot prices" not in trace.round()
    events = {1.0: lambda: trace.scale(0), 3.0: lambda: trace.scale(NODES)}
    billed = at(trace, events)
    assert billed == pytest.approx(100.0, rel=0.05)
    assert trace.passed > 4.5 * HOUR


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_without_the_guard_the_nodes_end_at_the_end_that_it_moved_last(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=200.0, instance_types=["a2-highgpu-8g"], capacity="on-demand")
    check_permissions(trace)
    first = datetime.fromisoformat(trace.end_in_label())
    trace.scale(0)
    for _ in range(12):
        trace.advance(ROUND_S)
        trace.round()
    last = datetime.fromisoformat(trace.end_in_label())
    assert last > first + timedelta(minutes=45)
    trace.scale(NODES)
    trace.advance((last - trace.now()).total_seconds() - 300)
    assert trace.machines() == NODES
    trace.advance(600)
    assert trace.machines() == 0
    assert trace.billed() < 200.0 * 1.05
