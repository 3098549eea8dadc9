"""Every object of a run, of a probe before it, and of the guard, in the order in which they are applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.manifests import contexts, network, ray
from cloudrec.manifests.commands import launch_file
from cloudrec.manifests.environment import endpoint_ports
from cloudrec.manifests.launchers import MAKERS
from cloudrec.manifests.names import (
    RUN,
    check,
    check_labels,
    cluster_labels,
    engine_of,
    run_labels,
    trainers,
)
from cloudrec.manifests.rendering import render

if TYPE_CHECKING:
    from cloudrec.kube.target import Target
    from cloudrec.manifests.rendering import Context
    from cloudrec.manifests.workload import Workload
    from cloudrec.plan.transport import Profile

_OTHERS = ("default", "kube-")  # namespaces that come with a cluster: none of ours to label or to remove
# How much a namespace lets pods do (Pod Security Standards): host folders and pinned memory need all of it.
_PRIVILEGED = frozenset({"infiniband", "tcpx", "tcpxo"})


def run_objects(
    launcher: str, workload: Workload, target: Target, profile: Profile
) -> tuple[dict[str, Any], ...]:
    """Return all objects of one launch of a run, in the order in which they are applied.

    Raises:
        UsageError: there is no such launcher.
        SpecError: a name, a number, the image or a variable is nothing that Kubernetes takes.
    """
    check(engine_of(launcher), workload, target)
    made = MAKERS[launcher](workload, target, profile)
    namespace = namespace_objects(target, workload.cluster, workload.owner)
    parts = (_config(launcher, workload, target), _policy(launcher, workload, target))
    return (*namespace, *(render(each) for each in (*parts, *_budget(workload, target), *made)))


def namespace_objects(target: Target, cluster: str, owner: str) -> tuple[dict[str, Any], ...]:
    """Return the namespace of a cluster's runs and what their pods run as; neither where it is not ours.

    Args:
        target: the cluster.
        cluster: its name.
        owner: who answers for it.
    """
    check_labels(cluster, owner)
    if target.namespace.startswith(_OTHERS):
        return ()
    labels = cluster_labels(cluster, owner)
    level = "privileged" if target.fabric in _PRIVILEGED else "restricted"
    namespace = contexts.Namespace(
        name=target.namespace,
        labels={
            **labels,
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": level,
        },
    )
    account = contexts.ServiceAccount(
        name=target.service_account,
        namespace=target.namespace,
        labels=labels,
        annotations=dict(target.service_account_annotations) or None,
    )
    named = () if target.service_account == "default" else (account,)
    return tuple(render(each) for each in (namespace, *named))


def _config(launcher: str, workload: Workload, target: Target) -> Context:
    files = {"trainer.yaml": workload.config}
    if launcher == "rayjob":
        files[ray.LAUNCH_FILE] = launch_file(workload, target)
    return contexts.ConfigMap(**_named(workload, target), data=files)


def _policy(launcher: str, workload: Workload, target: Target) -> Context:
    own = {RUN: workload.run}
    visitors = network.from_ray_operator() if launcher == "rayjob" else []
    return contexts.NetworkPolicy(
        **_named(workload, target),
        selector=own,
        ingress=[*network.among(own), *visitors],
        egress=network.outwards(to=own, ports=endpoint_ports(workload.environment)),
    )


def _budget(workload: Workload, target: Target) -> tuple[Context, ...]:
    """Return what paces drains: a pod at a time, and no more than an elastic run can do without.

    All pods of a run begin again when one is lost, so a run that forbade every drain would only hold up
    the cluster's maintenance; of a run with one pod nothing can be paced.
    """
    if workload.nodes == 1:
        return ()
    fewest = min(workload.min_nodes, workload.nodes - 1)
    budget = contexts.PodDisruptionBudget(
        **_named(workload, target), selector=trainers(workload.run), min_available=fewest
    )
    return (budget,)


def _named(workload: Workload, target: Target) -> dict[str, Any]:
    return {"name": workload.run, "namespace": target.namespace, "labels": run_labels(workload)}
