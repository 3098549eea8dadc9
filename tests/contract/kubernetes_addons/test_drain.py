"""Before a cluster is deleted, cloud resources of its controllers are deleted."""

from __future__ import annotations

from typing import Any

from cloudrec.engine.clock import Clock
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.drain import Drained, drain
from tests.contract.kubernetes_addons.support import Server

HURRIED = Clock(speed=100.0)


def put(kube: Kube, version: str, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> None:
    place = {} if kind == "PersistentVolume" else {"namespace": "default"}
    kube.create(
        {"apiVersion": version, "kind": kind, "metadata": {"name": name, **place, **metadata}, "spec": spec}
    )


def volume(kube: Kube, name: str, policy: str, **metadata: Any) -> None:
    """A persistent volume and its claim."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    disk = {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{name}"}
    put(
        kube,
        "v1",
        "PersistentVolume",
        name,
        {**spec, "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": policy, "csi": disk},
        **metadata,
    )
    claim = {**spec, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    put(kube, "v1", "PersistentVolumeClaim", f"of-{name}", claim)


def drained(kube: Kube, wait_s: float = 30.0) -> Drained:
    return drain(kube, lambda _: None, clock=HURRIED, wait_s=wait_s)


def test_an_empty_cluster_has_nothing_to_drain(kube: Kube) -> None:
    assert drained(kube) == Drained()


def test_load_balancers_and_ingresses_are_deleted_and_other_services_are_kept(kube: Kube) -> None:
    ports = {"ports": [{"port": 80}], "selector": {"app": "a"}}
    put(kube, "v1", "Service", "outside", {**ports, "type": "LoadBalancer"})
    put(kube, "v1", "Service", "inside", ports)
    backend = {"service": {"name": "inside", "port": {"number": 80}}}
    put(kube, "networking.k8s.io/v1", "Ingress", "door", {"defaultBackend": backend})
    done = drained(kube)
    assert set(done.removed) == {"Ingress default/door", "Service default/outside"}
    assert done.left == ()
    assert kube.get("Service", "inside", namespace="default") is not None


def test_runs_are_deleted_before_their_volume_claims(kube: Kube) -> None:
    said: list[str] = []
    labels = {"app.kubernetes.io/managed-by": "cloudrec", "cloudrec/run": "r1"}
    pod = {"restartPolicy": "Never", "containers": [{"name": "trainer", "image": "x"}]}
    put(kube, "batch/v1", "Job", "r1", {"template": {"spec": pod}, "suspend": True}, labels=labels)
    put(kube, "batch/v1", "Job", "theirs", {"template": {"spec": pod}, "suspend": True})
    drain(kube, said.append, clock=HURRIED)
    assert said == ["ending the run r1"]
    assert [each["metadata"]["name"] for each in kube.list("Job")] == ["theirs"]


def test_a_claim_with_reclaim_policy_retain_is_kept(kube: Kube) -> None:
    volume(kube, "kept", "Retain")
    assert drained(kube) == Drained()
    assert kube.get("PersistentVolumeClaim", "of-kept", namespace="default") is not None


def test_a_disk_that_is_not_deleted_in_time_is_reported(kube: Kube) -> None:
    said: list[str] = []
    volume(kube, "stuck", "Delete", finalizers=["external-provisioner.volume.kubernetes.io/finalizer"])
    done = drain(kube, said.append, clock=HURRIED, wait_s=20.0)
    assert done.left == ("PersistentVolumeClaim default/of-stuck",)
    assert "searched for afterwards" in said[-1]
    kube.patch("PersistentVolume", "stuck", {"metadata": {"finalizers": None}})


def test_an_unreachable_cluster_is_reported_and_does_not_block(server: Server) -> None:
    server.control(reset=True)
    said: list[str] = []
    with server.connect() as kube:
        server.control(faults=[{"kind": "error", "code": "Forbidden", "status": 403, "times": 100}])
        done = drain(kube, said.append, clock=HURRIED)
        server.control(faults=[])
    assert done.problem
    assert done.removed == ()
    assert said[-1].startswith("resources that the cluster's controllers have created may remain")
