"""What users and runs may do in a cluster: the role of docs/attach.md, and the accounts of runs.

The role's verbs are compared with the decisions that the stand-in records of an account that has the role
while it enters a run; each verb is taken away in turn. The guard's roles: `test_guard_limits.py`.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.manifests import run_objects
from cloudrec.launchers.base.attach import ForwardsPorts, RunsCommands
from cloudrec.launchers.kubernetes.context import disconnect
from tests.contract.kubernetes.support import Server, api_server
from tests.contract.kubernetes.support_accounts import client_of, config_of
from tests.contract.kubernetes.support_guard import IMAGE, LAUNCHERS, RBAC, named
from tests.contract.kubernetes.support_runs import Site, await_true
from tests.contract.kubernetes.support_store import bucket
from tests.contract.support_least import Found, Grant, differences, unneeded
from tests.tallies import Tally
from tests.unit.kubernetes_manifests.support_matrix import profile, workload

ROOT = Path(__file__).parents[3]
FAKE = ROOT / "tests" / "e2e" / "fake_trainer.py"
NODES = [{"name": "cpu", "count": 2, "capacity": {"cpu": "4", "memory": "16Gi"}}]
USER = "enters"


def shipped_role() -> dict[str, Any]:
    """The role of docs/attach.md."""
    text = (ROOT / "docs" / "attach.md").read_text(encoding="utf-8")
    (found,) = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: Role" in each]
    role: dict[str, Any] = yaml.safe_load(found)
    return role


ROLE = shipped_role()


def grants() -> list[Grant]:
    return [
        Grant(action=f"{verb} {group or 'core'}/{resource}")
        for rule in ROLE["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def rules_without(grant: Grant | None) -> list[dict[str, Any]]:
    """A rule for each permission but one."""
    kept = [each.action for each in grants() if each != grant]
    parts = [(verb, *what.split("/", 1)) for verb, what in (each.split(" ") for each in kept)]
    return [
        {"apiGroups": [group.replace("core", "")], "resources": [resource], "verbs": [verb]}
        for verb, group, resource in parts
    ]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with api_server() as server, server.connect() as kube:
        kube.create(named("v1", "Namespace", server.namespace))
        kube.create(named("v1", "ServiceAccount", server.target().service_account, server.namespace))
        server.control(nodes=NODES, processes=True, bookkeeping={})
        yield server


class Entered:
    """A run that trains, whose launcher has the token of an account with the shipped role."""

    def __init__(self, server: Server, folder: Path, variables: dict[str, str]) -> None:
        self.server = server
        self.config = folder / "kubeconfig"
        self.config.write_text(Path(server.kubeconfig).read_text(encoding="utf-8"), encoding="utf-8")
        spec = Site(server, folder).spec(
            "entered",
            nodes=2,
            nproc_per_node=1,
            storage="s3://bucket",
            settings={"cpus": 1},
            environment=variables,
            target={"fabric": "none", "kubeconfig": str(self.config)},
            trainer_config={"steps": 100_000, "checkpoint_interval": 100_000},
            trainer_command=(sys.executable, "-c", FAKE.read_text(encoding="utf-8")),
        )
        self.engine, self.run = Site(server, folder).launch(spec)
        next(iter(self.engine.logs(self.run, rank=1, follow=True)))  # it trains
        space = server.namespace
        with server.connect() as kube:
            kube.create(named("v1", "ServiceAccount", USER, space))
            role = {**ROLE, "metadata": {"name": USER, "namespace": space}}
            kube.create({**role, "rules": rules_without(None)})
            subject = {"kind": "ServiceAccount", "name": USER, "namespace": space}
            reference = {"apiGroup": RBAC, "kind": "Role", "name": USER}
            kube.create(
                named(f"{RBAC}/v1", "RoleBinding", USER, space, roleRef=reference, subjects=[subject])
            )
            text = config_of(server, kube, USER, space)
        disconnect()
        self.config.write_text(text, encoding="utf-8")

    def found(self, *, without: Grant | None = None) -> Found:
        """Enter the run, read its output, and forward a port, without a permission of the role."""
        with self.server.connect() as kube:
            kube.patch("Role", USER, {"rules": rules_without(without)}, namespace=self.server.namespace)
        self.server.control(decisions={})
        said = [each for each in (self._executes(), self._reads(), self._forwards()) if each]
        disconnect()
        who = f"system:serviceaccount:{self.server.namespace}:{USER}"
        noted = self.server.control()["decisions"].get(who, {"used": [], "refused": []})
        return Found(used=frozenset(noted["used"]), refused=frozenset(noted["refused"]), said="; ".join(said))

    def _executes(self) -> str:
        assert isinstance(self.engine, RunsCommands)
        try:
            for rank in (0, 1):
                self.engine.execute(self.run, ["true"], rank=rank, stdin=False, terminal=False)
        except CloudrecError as error:
            return error.message
        return ""

    def _reads(self) -> str:
        try:
            next(iter(self.engine.logs(self.run, rank=1, follow=True)))
        except CloudrecError as error:
            return error.message
        return ""

    def _forwards(self) -> str:
        engine, ports, problems = self.engine, list[int](), list[str]()
        assert isinstance(engine, ForwardsPorts)

        def serve() -> None:
            try:
                engine.forward(self.run, rank=0, remote=6006, local=0, ready=ports.append)
            except CloudrecError as error:
                problems.append(error.message)

        threading.Thread(target=serve, daemon=True).start()
        await_true(lambda: bool(ports or problems), 60)
        return "; ".join(problems)


@pytest.fixture(scope="module")
def entered(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entered]:
    folder = tmp_path_factory.mktemp("entered")
    with bucket(folder) as (_, variables):
        entered = Entered(server, folder, variables)
        yield entered
        disconnect()
        entered.config.write_text(Path(server.kubeconfig).read_text(encoding="utf-8"), encoding="utf-8")
        entered.engine.stop(entered.run, grace_s=1)
        disconnect()


def test_the_role_of_a_user_who_enters_runs_has_what_that_uses(entered: Entered) -> None:
    found = entered.found()
    assert (found.said, found.refused) == ("", frozenset())
    assert differences((each.action for each in grants()), found.used, {}) == []


def test_each_verb_of_the_role_is_needed(entered: Entered, tally: Tally) -> None:
    held = grants()
    assert unneeded(held, lambda grant: entered.found(without=grant)) == []
    tally(f"each of {len(held)} verbs of the role of docs/attach.md is needed")


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_run_may_do_nothing_in_the_cluster(server: Server, launcher: str) -> None:
    target = server.target()
    objects = run_objects(
        launcher, workload("kubernetes-cpu", run=launcher, image=IMAGE), target, profile(target)
    )
    assert [each["kind"] for each in objects if "Role" in each["kind"]] == []
    accounts = set(re.findall(r"'serviceAccountName': '([^']*)'", str(objects)))
    assert accounts == {target.service_account}
    with server.connect() as kube:
        account: Kube
        with client_of(server, kube, target.service_account, server.namespace) as account:
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "spec": {"namespace": server.namespace},
            }
            path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
            rules = account.raw("POST", path, what="ask for its rights", body=body)["status"]["resourceRules"]
    assert {resource.split(".")[0] for rule in rules for resource in rule["resources"]} == {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "selfsubjectreviews",
    }
