"""The namespace of runs on a cluster that cloudrec created: it is created if missing, else used unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.kubernetes.namespaces import prepare
from tests.contract.kubernetes_addons.support import Server

LEVEL = "pod-security.kubernetes.io/enforce"


def found(kube: Kube, target: ClusterTarget) -> tuple[dict[str, Any], dict[str, Any]]:
    space = kube.get("Namespace", target.namespace)
    account = kube.get("ServiceAccount", target.service_account, namespace=target.namespace)
    assert space is not None
    assert account is not None
    return space["metadata"], account["metadata"]


def test_a_missing_namespace_is_created_once(kube: Kube, server: Server) -> None:
    target = replace(server.target(), namespace="fresh", service_account_annotations={"role": "one"})
    prepare(kube, target, "c", "ann")
    space, account = found(kube, target)
    assert (space["labels"]["cloudrec/cluster"], space["labels"][LEVEL]) == ("c", "restricted")
    assert account["annotations"] == {"role": "one"}
    prepare(kube, target, "c", "ann")
    assert found(kube, target) == (space, account)


def test_objects_of_cloudrec_are_updated_with_the_fabric_and_the_identity(kube: Kube, server: Server) -> None:
    target = replace(server.target(), namespace="fresh", service_account_annotations={"role": "one"})
    prepare(kube, target, "c", "ann")
    changed = replace(target, fabric="infiniband", service_account_annotations={"role": "two"})
    prepare(kube, changed, "c", "ann")
    space, account = found(kube, target)
    assert (space["labels"][LEVEL], account["annotations"]) == ("privileged", {"role": "two"})


def test_objects_of_others_are_used_unchanged(kube: Kube, server: Server) -> None:
    target = replace(server.target(), namespace="theirs")
    for kind, where in (("Namespace", {}), ("ServiceAccount", {"namespace": "theirs"})):
        name = "theirs" if kind == "Namespace" else target.service_account
        kube.create({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, **where}})
    before = found(kube, target)
    prepare(kube, target, "c", "ann")
    assert found(kube, target) == before
