"""Shared helpers of the AWS provider's tests, which run against the stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.engine.graph import Observed
from cloudrec.engine.plan import Action, Plan
from cloudrec.home import Home
from cloudrec.providers.aws.provider import AwsProvider
from cloudrec.spec.models import ClusterSpec
from tests.sandbox.aws.support import Aws

# vCPU quota of GPU nodes: 0 in a new account.
_QUOTAS = {"ec2/L-417A185B": 1000, "ec2/L-7212CCBC": 1000, "ec2/L-C4BD4855": 1000, "ec2/L-DB2E81BA": 1000}
# Prefixes of read-only actions.
_READS = ("Describe", "Get", "List", "Head")
SPEED = 600.0  # of the stand-in's clock; a wait takes a tenth of a second
# One real command that waits for a line on stdin before it starts, so that its pid can be printed.
_HELD = "import sys; sys.stdin.readline(); from cloudrec.cli.main import run; sys.exit(run(sys.argv[1:]))"


def fresh(aws: Aws, **control: Any) -> None:
    """Reset to an empty account with GPU quota, where operations take seconds."""
    aws.control(reset=True)
    aws.env["CLOUDREC_SANDBOX_SPEED"] = str(SPEED)
    aws.control(speed=SPEED, durations={"*": 5}, quotas=_QUOTAS, **control)


class Site:
    """One home, one account on the stand-in, and a requested cluster."""

    def __init__(self, aws: Aws, folder: Path, **cluster: Any) -> None:
        self.aws = aws
        self.home = Home(root=folder / "home")
        self.unsearched: tuple[str, ...] = ()  # what the last `down` could not search
        given: dict[str, Any] = {
            "name": "t",
            "provider": "aws",
            "owner": "tester",
            "nodes": 1,
            "access": "private",
            **cluster,
        }
        self.cluster = ClusterSpec.model_validate(given)

    @property
    def application(self) -> AppContext:
        return AppContext(home=self.home, environment=self.aws.env)

    @property
    def provider(self) -> AwsProvider:
        return AwsProvider(self.home, self.aws.env)

    def up(self) -> Plan:
        return app.up(self.application, self.cluster, decide=lambda _plan: True)

    def planned(self) -> dict[str, Action]:
        """The changes that `up` plans, by key."""
        plan = app.up(self.application, self.cluster, decide=lambda _plan: False)
        return {action.key: action for action in plan.changes}

    def down(self, *, keep_data: bool = False) -> None:
        removal = app.down(
            self.application,
            provider_name="aws",
            cluster_name=self.cluster.title,
            keep_data=keep_data,
            decide=lambda _removal: True,
        )
        self.unsearched = removal.unsearched if removal is not None else ()

    def found(self) -> dict[str, Observed]:
        """The resources that a search by tag finds, by key."""
        return {seen.key: seen for seen in self.provider.search(self.cluster.title)}

    def changes(self, since: int = 0) -> list[str]:
        """The changing calls that the stand-in received."""
        return [
            f"{call['service']}:{call['action']}"
            for call in self.aws.calls(since)
            if not call["action"].startswith(_READS)
        ]

    def killed(self, arguments: Sequence[str], *, call: int, when: str) -> int:
        """Run one command that is killed at its n-th call; return its exit status."""
        environment: Mapping[str, str] = {
            **os.environ,
            **self.aws.env,
            "CLOUDREC_HOME": str(self.home.root),
            "CLOUDREC_CLUSTER_OWNER": "tester",
        }
        with subprocess.Popen(
            [sys.executable, "-c", _HELD, *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                self.aws.control(kill={"pid": process.pid, "call": call, "when": when})
                _, errors = process.communicate("go\n", timeout=120)
            finally:
                process.kill()
        assert process.returncode in {0, -9}, errors
        return process.returncode
