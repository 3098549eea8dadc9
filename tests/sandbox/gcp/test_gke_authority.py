"""Permissions of IAM in a cluster, as GKE documents them."""

from __future__ import annotations

from typing import Any

import pytest

from cloudrec_sandbox.gcp.services.gke import authority
from cloudrec_sandbox.gcp.services.iam import roles
from cloudrec_sandbox.kubernetes.api.rbac import Deed

GROUP = "rbac.authorization.k8s.io"
SECRET = Deed(verb="create", group="", resource="secrets", namespace="default")
PATCH = Deed(verb="patch", group="batch", resource="jobs", namespace="default")
WATCH = Deed(verb="watch", group="", resource="pods", namespace="default")
LOG = Deed(verb="get", group="", resource="pods/log", namespace="default")
CUSTOM = Deed(verb="create", group="kubeflow.org", resource="pytorchjobs", namespace="default")
CLASS = Deed(verb="get", group="networking.k8s.io", resource="ingressclasses")
GRANT = Deed(verb="create", group=GROUP, resource="clusterrolebindings")
BIND = Deed(verb="bind", group=GROUP, resource="clusterroles", name="cluster-admin")


def allowed(*granted: str) -> set[Deed]:
    patterns = tuple(pattern for role in granted for pattern in roles.PREDEFINED.get(role, (role,)))
    rules: Any = authority._rules(patterns)
    deeds = {SECRET, PATCH, WATCH, LOG, CUSTOM, CLASS, GRANT, BIND}
    return {deed for deed in deeds if any(deed.is_within(rule) for rule in rules)}


@pytest.mark.parametrize(
    ("granted", "deeds"),
    [
        (["roles/container.admin"], {SECRET, PATCH, WATCH, LOG, CUSTOM, CLASS, GRANT, BIND}),
        (["roles/container.developer"], {SECRET, PATCH, WATCH, LOG, CUSTOM, CLASS}),
        # The right to create, change and delete clusters is none in a cluster.
        (["roles/container.clusterAdmin"], set()),
        (["container.pods.list"], {WATCH}),
        (["container.pods.getLogs", "container.jobs.update"], {LOG, PATCH}),
        (["container.thirdPartyObjects.create"], {CUSTOM}),
    ],
)
def test_a_permission_of_iam_is_a_rule_in_the_cluster(granted: list[str], deeds: set[Deed]) -> None:
    assert allowed(*granted) == deeds
