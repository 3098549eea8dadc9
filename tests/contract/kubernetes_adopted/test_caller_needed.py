"""Who adopts a cluster needs what `doctor` asks for, and nothing else.

The permissions are those that the check asks the API server about; what `up`, `doctor`, `leaks` and `down`
use is what the stand-in records of an account that has these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cloudrec import app
from cloudrec.errors import CloudrecError
from cloudrec.home import Home
from cloudrec.launchers.kubernetes.context import disconnect
from tests.conformance.support_clouds import Site
from tests.contract.kubernetes_adopted.test_adopted import LABELS, given, kube, obj, trained
from tests.contract.support_least import Found, Grant, differences, unneeded
from tests.tallies import Tally

SPACE, USER = "theirs", "caller"
RBAC = "rbac.authorization.k8s.io"
# The account asks for its own permissions: every account may (the role system:basic-user).
FREE = {"create authorization.k8s.io/selfsubjectaccessreviews"}
# Used where they are allowed: the devices, the quota of the namespace, notes in other namespaces.
TOLERATED = {"list resource.k8s.io/deviceclasses", "list core/resourcequotas", "get core/configmaps"}
# Without these, the check itself is refused, with their name.
FIRST = [
    Grant(action="get Namespace"),
    Grant(action="list Node"),
    Grant(action="get ServiceAccount", source=SPACE),
]
MANAGED = {"app.kubernetes.io/managed-by": "cloudrec"}
# What a launch makes before its Job, which then owns it.
LEFT: dict[str, tuple[str, dict[str, Any]]] = {
    "Service": ("v1", {"ports": [{"port": 80}]}),
    "NetworkPolicy": ("networking.k8s.io/v1", {"podSelector": {}}),
    "PodDisruptionBudget": ("policy/v1", {"maxUnavailable": 1, "selector": {}}),
}


class Caller:
    """An account with the permissions that `doctor` asks for, and a namespace for the runs."""

    def __init__(self, site: Site, folder: Path, storage: str) -> None:
        self.site, self.folder, self.count = site, folder, 0
        self.admin = dict(site.cloud.env)
        config = folder / "kubeconfig"
        subject = {"kind": "ServiceAccount", "name": USER, "namespace": SPACE}
        with kube(site) as self.client:
            self.client.create(obj("Namespace", SPACE))
            self.client.create(obj("ServiceAccount", USER, namespace=SPACE))
            for kind, space in (("ClusterRole", ""), ("Role", SPACE)):
                self.client.create(_of_rbac(kind, space, rules=[]))
                reference = {"apiGroup": RBAC, "kind": kind, "name": USER}
                self.client.create(_of_rbac(f"{kind}Binding", space, roleRef=reference, subjects=[subject]))
            body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
            path = f"/api/v1/namespaces/{SPACE}/serviceaccounts/{USER}/token"
            token = self.client.raw("POST", path, what="ask for a token", body=body)["status"]["token"]
        document = yaml.safe_load(Path(self.admin["KUBECONFIG"]).read_text(encoding="utf-8"))
        user = document["contexts"][0]["context"]["user"]
        document["users"] = [{"name": user, "user": {"token": token}}]
        config.write_text(yaml.safe_dump(document), encoding="utf-8")
        self.client = kube(site)
        given(site, namespace=SPACE, storage=storage, probe_storage=False)
        site.cloud.env["KUBECONFIG"] = str(config)

    def close(self) -> None:
        """Give the site the administrator's kubeconfig back."""
        self.site.cloud.env.update(self.admin)
        disconnect()
        self.client.close()

    def lacking(self) -> list[Grant]:
        """What `doctor` says that the account lacks; the source is the namespace, empty for everywhere."""
        checks = {each.check: each for each in app.doctor(self.site.application, self.site.cluster)}
        said = checks["permissions"]
        if said.ok:
            return []
        found = []
        for each in said.found.removeprefix("not allowed: ").split(", "):
            what, _, space = each.partition(" in ")
            found.append(Grant(action=what, source=space))
        return found

    def permit(self, held: list[Grant]) -> None:
        """Give the account these permissions, and no others."""
        for kind, space in (("ClusterRole", ""), ("Role", SPACE)):
            rules = [self._rule(each) for each in held if each.source == space]
            self.client.patch(kind, USER, {"rules": rules}, namespace=space)

    def _rule(self, grant: Grant) -> dict[str, Any]:
        verb, _, name = grant.action.partition(" ")
        kind = self.client.kinds.named(name)
        group = kind.version.rpartition("/")[0]
        return {"apiGroups": [group], "resources": [kind.plural], "verbs": [verb]}

    def named(self, grant: Grant) -> str:
        """A grant as the stand-in records its use."""
        rule = self._rule(grant)
        return f"{rule['verbs'][0]} {rule['apiGroups'][0] or 'core'}/{rule['resources'][0]}"

    def acts(self) -> Found:
        """Adopt the cluster, launch a run, look at all of it, stop it, and leave the cluster."""
        self.site.home = Home(root=self.folder / f"home-{self.count}")
        self.count += 1
        self.site.cloud.control(decisions={})
        said = []
        for act in (self.site.up, self.train, self.look, self.leave, self.site.down):
            try:
                act()
            except CloudrecError as error:
                said.append(f"{error.message}; {error.remedy}")
        noted = self.site.cloud.settings()["decisions"].get(f"system:serviceaccount:{SPACE}:{USER}", {})
        return Found(
            used=frozenset(noted.get("used", ())),
            refused=frozenset(noted.get("refused", ())),
            said="; ".join(said),
        )

    def train(self) -> None:
        trained(self.site, self.folder)

    def look(self) -> None:
        app.leaks(self.site.application, "kubernetes")

    def leave(self) -> None:
        """What another launch leaves that was killed before its Job: nothing owns it."""
        for kind, (version, spec) in LEFT.items():
            given_labels = {**LABELS, "cloudrec/run": "killed", "cloudrec/owner": "tester"}
            made = obj(kind, "killed", labels=given_labels, namespace=SPACE, spec=spec)
            self.client.apply({**made, "apiVersion": version})

    def without(self, held: list[Grant], grant: Grant) -> Found:
        """Act without a permission; afterwards nothing is left."""
        self.permit([each for each in held if each != grant])
        found = self.acts()
        self.permit(held)
        for kind in ("Job", "Pod", "ConfigMap", "ServiceAccount", *LEFT):
            for each in self.client.list(kind, namespace=SPACE, labels=MANAGED):
                self.client.delete(kind, each["metadata"]["name"], namespace=SPACE, grace_s=0)
        return found


def _of_rbac(kind: str, space: str, **fields: Any) -> dict[str, Any]:
    return {**obj(kind, USER, namespace=space, **fields), "apiVersion": f"{RBAC}/v1"}


@pytest.fixture
def caller(site: Site, tmp_path: Path, bucket: str) -> Iterator[Caller]:
    caller = Caller(site, tmp_path, bucket)
    yield caller
    caller.close()


# Read only if a pod takes long to start, which depends on the machine's load.
SOMETIMES = Grant(action="list Event", source=SPACE)


def held_by(caller: Caller) -> list[Grant]:
    """What `doctor` asks for, which the account has from now on."""
    caller.permit(FIRST)
    held = [*FIRST, *caller.lacking()]
    caller.permit(held)
    return held


def test_what_doctor_asks_for_suffices_and_is_used(caller: Caller) -> None:
    held = held_by(caller)
    assert caller.lacking() == []
    found = caller.acts()
    assert found.said == ""
    assert found.refused == TOLERATED
    assert SOMETIMES in held
    used = found.used - FREE | {caller.named(SOMETIMES)}
    assert differences(map(caller.named, held), used, {}) == []


def test_doctor_names_each_permission_that_is_missing(caller: Caller) -> None:
    held = held_by(caller)
    for grant in held[len(FIRST) :: 6]:
        caller.permit([each for each in held if each != grant])
        assert caller.lacking() == [grant]


@pytest.mark.soak
def test_each_permission_that_doctor_asks_for_is_needed(caller: Caller, tally: Tally) -> None:
    held = held_by(caller)

    def names(grant: Grant, found: Found) -> bool:
        return grant.action in found.said or caller.named(grant) in found.refused

    needed = [each for each in held if each != SOMETIMES]
    assert unneeded(needed, lambda grant: caller.without(held, grant), names) == []
    tally(f"each of {len(needed)} permissions of who adopts a cluster is needed")
