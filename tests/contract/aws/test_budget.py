"""A budget ends at the money: nodes that are missing cost nothing, and the end in AWS moves with them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.app.addons import refuse_ended
from cloudrec.app.records import known_clusters
from cloudrec.keeper.guard import Guard, halting, moving, pricing
from cloudrec.kubernetes.client.client import Kube
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Cloud, stand_in, until
from tests.contract.aws.support import Site, fresh
from tests.contract.aws.support_policies import BOUNDARY, POLICIES
from tests.contract.support_time import same_time, take_over_guard
from tests.sandbox.aws.support import Aws

ROUND_S = 300.0  # the guard's rounds here; in a cluster they are two minutes apart
HOUR = 3600.0
NODES = 2
LONGEST = 60 * HOUR


@dataclass
class Trace:
    """A cluster with a budget on linked stand-ins, whose time passes by order."""

    aws: Aws
    server: Cloud
    site: Site
    kube: Kube
    namespace: str
    guard: dict[str, str]  # the credentials of the guard's role
    ahead: float  # seconds by which the stand-ins' clocks were ahead of the real time at the beginning
    passed: float = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.ahead + self.passed)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.site.home, environment=self.aws.env, now=self.now)

    def advance(self, seconds: float) -> None:
        """Let time pass in both stand-ins, and wait until the nodes are those that AWS has."""
        self.passed += seconds
        self.aws.control(advance_s=seconds)
        self.server.control(advance_s=seconds)
        self.agree()

    def agree(self) -> None:
        until(lambda: len(self.nodes()) == len(self.machines()), "the nodes are AWS's")

    def machines(self) -> list[str]:
        rows = self.aws.client("ec2").describe_instances(
            Filters=[{"Name": "instance-state-name", "Values": ["running"]}]
        )
        found = [each for row in rows["Reservations"] for each in row["Instances"]]
        return [each["InstanceId"] for each in found if each["InstanceType"].startswith("p")]

    def nodes(self) -> list[dict[str, Any]]:
        return self.kube.list("Node", labels="cloudrec.io/nodes=gpu")

    def round(self) -> str:
        said: list[str] = []
        guard = Guard(
            kube=self.kube,
            namespace=self.namespace,
            halt=halting(self.site.home.root, {**self.aws.env, **self.guard}),
            pricer=pricing(self.site.home.root, {**self.aws.env, **self.guard}),
            mover=moving(self.site.home.root, {**self.aws.env, **self.guard}),
            now=self.now,
            report=said.append,
        )
        self.aws.control(enforce_iam=True)
        guard.round()
        self.aws.control(enforce_iam=False)
        return "\n".join(said)

    def scale(self, count: int) -> None:
        """Let the group have this many nodes, as AWS does when it takes them back and has them again."""
        eks = self.aws.client("eks")
        cluster = f"cloudrec-{self.site.cluster.title}"
        (name,) = [
            each for each in eks.list_nodegroups(clusterName=cluster)["nodegroups"] if each.startswith("gpu-")
        ]
        scaling = {"minSize": 0, "maxSize": NODES, "desiredSize": count}
        until(lambda: self._is_active(cluster, name), "the group is active")
        eks.update_nodegroup_config(clusterName=cluster, nodegroupName=name, scalingConfig=scaling)
        until(lambda: self._has(count), f"{count} nodes")

    def _has(self, count: int) -> bool:
        self.advance(1)  # nodes register soon after their start, not after a whole round
        return len(self.machines()) == count

    def _is_active(self, cluster: str, name: str) -> bool:
        self.advance(30)
        row = self.aws.client("eks").describe_nodegroup(clusterName=cluster, nodegroupName=name)
        return bool(row["nodegroup"]["status"] == "ACTIVE")

    def price(self, factor: float) -> None:
        """Let spot nodes cost this part of the on-demand price from now on."""
        self.aws.control(spot_price_factor={"*": factor})

    def billed(self) -> float:
        return float(self.aws.ask("GET", "/bill")["usd"])

    def end_in_aws(self) -> set[str]:
        scheduler, group = self.aws.client("scheduler"), f"cloudrec-{self.site.cluster.title}"
        names = [row["Name"] for row in scheduler.list_schedules(GroupName=group)["Schedules"]]
        return {scheduler.get_schedule(GroupName=group, Name=name)["ScheduleExpression"] for name in names}


def check_commands(trace: Trace) -> None:
    """Commands know the moved end: the one in the journal has passed."""
    application = trace.application
    (known,) = known_clusters(application, name=trace.site.cluster.title)
    assert datetime.fromisoformat(known.cluster.expires or "") < trace.now()
    (view,) = app.clusters(application)
    assert {f"at({(view.expires or '').rstrip('Z')})"} == trace.end_in_aws()
    assert view.spent_usd == pytest.approx(trace.billed(), rel=0.05)
    assert app.expired(application, "aws") == []
    refuse_ended(application, known.cluster, application.provider("aws").access(known.cluster))
    app.up(
        application,
        app.recorded(application, known.cluster).model_copy(update={"access": "auto"}),
        decide=lambda _plan: True,
    )
    (later,) = known_clusters(application, name=trace.site.cluster.title)
    assert later.cluster.expires == view.expires
    assert later.cluster.end_limit is None


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Makes a cluster with a budget; its time is virtual from its creation on."""
    with stand_in("kubernetes") as server, stand_in("aws") as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        aws = Aws(cloud.env)
        fresh(aws)
        server.control(speed=1)
        document = json.dumps(POLICIES[BOUNDARY])
        aws.client("iam").create_policy(PolicyName=BOUNDARY, PolicyDocument=document)
        aws.control(kubernetes=server._announcement, speed=1, real_times=False, durations={"*": 0.2})
        aws.env.pop("CLOUDREC_CLUSTER_ADDONS", None)
        made: list[Kube] = []

        def begin(**cluster: Any) -> Trace:
            site = Site(aws, tmp_path, **{"nodes": NODES, "access": "auto", **cluster})
            aws.control(bill=True)
            ahead = same_time(aws, server)
            application = AppContext(
                home=site.home, environment=aws.env, now=lambda: datetime.now(UTC) + timedelta(seconds=ahead)
            )
            app.up(application, site.cluster, decide=lambda _plan: True)
            access = application.provider("aws").access(site.cluster)
            assert isinstance(access, KubernetesAccess)
            kube = Kube.connect(access.target).__enter__()
            made.append(kube)
            trace = Trace(aws, server, site, kube, access.target.namespace, credentials(aws), ahead)
            take_over_guard(server, kube, access.target.namespace)
            trace.advance(60)  # IAM is eventually consistent
            return trace

        yield begin
        for kube in made:
            kube.__exit__(None, None, None)


def credentials(aws: Aws) -> dict[str, str]:
    """The credentials of the guard's role, as EKS Pod Identity gives them to its pod."""
    iam = aws.client("iam")
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    (role,) = [
        row for row in iam.list_roles(PathPrefix="/cloudrec/")["Roles"] if row["RoleName"].endswith("-guard")
    ]
    iam.update_assume_role_policy(
        RoleName=role["RoleName"], PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    )
    found = aws.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="guard")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
        "AWS_SESSION_TOKEN": found["SessionToken"],
    }


def at(trace: Trace, events: dict[float, Callable[[], None]]) -> float:
    """Make the guard's rounds and what happens at certain hours until AWS has no GPU nodes and no events."""
    waiting = sorted(events.items())
    while trace.passed < LONGEST:
        trace.advance(ROUND_S)
        while waiting and trace.passed >= waiting[0][0] * HOUR:
            waiting.pop(0)[1]()
        said = trace.round()
        assert "the cloud still ends" not in said
        if not waiting and "its nodes go" in said:
            trace.advance(60)
        if not waiting and not trace.machines():
            billed = trace.billed()
            budget = trace.site.cluster.budget_usd
            print(f"budget ${budget:g}: bill ${billed:.2f} after {trace.passed / HOUR:.2f} h")
            return billed
    raise AssertionError(f"{trace.passed / HOUR:.1f} h, ${trace.billed():.2f}")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stock_out_costs_nothing_and_the_budget_lasts_longer(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=150.0, instance_types=["p4d.24xlarge", "p5.48xlarge"])
    before = trace.end_in_aws()
    # $44/h for two nodes; half of them are missing for an hour, then all of them until `up`.
    events = {
        1.0: lambda: trace.scale(1),
        2.0: lambda: trace.scale(0),
        5.0: lambda: check_commands(trace),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(150.0, rel=0.05)
    assert trace.passed > 6.5 * HOUR  # without the stock-out it is 3.4 hours
    assert trace.end_in_aws().isdisjoint(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_budget_follows_the_spot_price(begun: Callable[..., Trace]) -> None:
    trace = begun(budget_usd=60.0, capacity="spot", instance_types=["p4d.24xlarge"])
    refusal = {"kind": "error", "status": 403, "code": "UnauthorizedOperation", "message": "not yours"}
    trace.aws.control(faults=[{**refusal, "action": "DescribeSpotPriceHistory", "times": 1000}])
    said = trace.round()
    assert "the spot prices are those of before" in said
    assert "has cost" in said  # the rest of the round is made
    trace.advance(ROUND_S)
    trace.aws.control(faults=[{**refusal, "action": "DescribeSpotPriceHistory", "times": 1}])
    assert "the spot prices" not in trace.round()  # it is not asked again in each round
    trace.aws.control(faults=[])
    # $17.6/h for two nodes, then twice as much, then a third of that.
    events = {
        1.0: lambda: trace.price(0.8),
        1.5: lambda: trace.scale(0),
        3.0: lambda: trace.scale(NODES),
        3.2: lambda: trace.price(0.25),
    }
    billed = at(trace, events)
    assert billed == pytest.approx(60.0, rel=0.05)
    assert trace.passed > 4 * HOUR
