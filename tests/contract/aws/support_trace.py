"""A cluster on linked stand-ins of AWS and Kubernetes, whose time passes by order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.keeper.guard import Guard, halting, moving, pricing, sizing
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
# It waits for a line before it starts, so that its death can be ordered first.
_HELD = "import sys; sys.stdin.readline(); from cloudrec.cli.main import run; sys.exit(run(sys.argv[1:]))"


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

    def round(self, around: Callable[[Any], Any] = lambda client: client, identity: str = "test") -> str:
        """Make a round of the guard; `around` wraps its clients of Kubernetes and of the cloud."""
        said: list[str] = []
        sizer = sizing(self.site.home.root, {**self.aws.env, **self.guard})
        guard = Guard(
            kube=around(self.kube),
            namespace=self.namespace,
            halt=halting(self.site.home.root, {**self.aws.env, **self.guard}),
            pricer=pricing(self.site.home.root, {**self.aws.env, **self.guard}),
            mover=moving(self.site.home.root, {**self.aws.env, **self.guard}),
            sizer=lambda cluster: around(sizer(cluster)),
            identity=identity,
            now=self.now,
            report=said.append,
        )
        self.aws.control(enforce_iam=True)
        try:
            guard.round()
        finally:
            self.aws.control(enforce_iam=False)
        return "\n".join(said)

    def command(self, *words: str, **kill: Any) -> subprocess.CompletedProcess[str]:
        """Run a command of a user, in its own process; `kill` is the call of Kubernetes at which it dies."""
        with subprocess.Popen(
            [sys.executable, "-c", _HELD, *words],
            env={
                **os.environ,
                **self.aws.env,
                "CLOUDREC_HOME": str(self.site.home.root),
                "CLOUDREC_CLUSTER_OWNER": self.site.cluster.owner,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                if kill:
                    self.server.control(kill={"pid": process.pid, **kill})
                output, errors = process.communicate("go\n", timeout=300)
            finally:
                process.kill()
                self.server.control(kill=None)
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

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


@contextmanager
def traced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trace]]:
    """Yield what makes a cluster; its time is virtual from its creation on."""
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
        monkeypatch.delenv("CLOUDREC_CLUSTER_ADDONS", raising=False)
        made: list[Kube] = []

        def begin(**cluster: Any) -> Trace:
            site = Site(aws, folder, **{"nodes": NODES, "access": "auto", **cluster})
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
