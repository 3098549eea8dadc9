"""All objects of a run, in the order in which they are applied, and the namespace that it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.target import POD_SECURITY, pod_security
from cloudrec.kubernetes.manifests import network, placement, ray
from cloudrec.kubernetes.manifests.commands import launch_file
from cloudrec.kubernetes.manifests.environment import endpoint_ports
from cloudrec.kubernetes.manifests.launchers import MAKERS
from cloudrec.kubernetes.manifests.names import (
    RUN,
    check,
    check_labels,
    cluster_labels,
    engine_of,
    run_labels,
    trainers,
)
from cloudrec.kubernetes.manifests.setup import urls
from cloudrec.kubernetes.manifests.templates import contexts
from cloudrec.kubernetes.manifests.templates.rendering import render

if TYPE_CHECKING:
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.kubernetes.manifests.templates.rendering import TemplateContext
    from cloudrec.kubernetes.manifests.workload import Workload
    from cloudrec.transport import Profile

_OTHERS = ("default", "kube-")  # a cluster's own namespaces, which cloudrec does not label or remove


def run_objects(
    launcher: str, workload: Workload, target: ClusterTarget, profile: Profile
) -> tuple[dict[str, Any], ...]:
    """Return all objects of one launch of a run, in the order in which they are applied.

    The namespace and the service account must exist: a run uses them unchanged.

    Raises:
        UsageError: there is no such launcher.
        SpecError: a name, a number, the image or a variable is not valid.
    """
    check(engine_of(launcher), workload, target)
    made = MAKERS[launcher](workload, target, profile)
    parts = (_config(launcher, workload, target), _policy(launcher, workload, target))
    more = (*_budget(workload, target), *_claims(workload, target))
    return tuple(render(each) for each in (*parts, *more, *made))


def namespace_objects(target: ClusterTarget, cluster: str, owner: str) -> tuple[dict[str, Any], ...]:
    """Return the namespace and the service account of a cluster's runs; none for a cluster's own namespaces.

    The caller creates them, and does not apply them over existing objects, which may have another owner.

    Args:
        target: the cluster.
        cluster: the cluster's name.
        owner: the owner for the labels.
    """
    check_labels(cluster, owner)
    if target.namespace.startswith(_OTHERS):
        return ()
    labels = cluster_labels(cluster, owner)
    level = pod_security(target.fabric)
    namespace = contexts.Namespace(
        name=target.namespace,
        labels={**labels, POD_SECURITY: level, "pod-security.kubernetes.io/warn": level},
    )
    account = contexts.ServiceAccount(
        name=target.service_account,
        namespace=target.namespace,
        labels=labels,
        annotations=dict(target.service_account_annotations) or None,
    )
    named = () if target.service_account == "default" else (account,)
    return tuple(render(each) for each in (namespace, *named))


def _config(launcher: str, workload: Workload, target: ClusterTarget) -> TemplateContext:
    files = {"trainer.yaml": workload.config}
    if launcher == "rayjob":
        files[ray.LAUNCH_FILE] = launch_file(workload, target)
    return contexts.ConfigMap(**_named(workload, target), data=files)


def _policy(launcher: str, workload: Workload, target: ClusterTarget) -> TemplateContext:
    own = {RUN: workload.run}
    visitors = network.from_ray_operator() if launcher == "rayjob" else []
    return contexts.NetworkPolicy(
        **_named(workload, target),
        selector=own,
        ingress=[*network.among(own), *visitors, *network.from_scrapers(workload.metrics_port)],
        egress=network.outwards(to=own, ports=endpoint_ports(urls(workload))),
    )


def _budget(workload: Workload, target: ClusterTarget) -> tuple[TemplateContext, ...]:
    """Return the disruption budget: a drain evicts one pod at a time, and leaves `min_nodes`.

    A run restarts from its checkpoint when a pod is lost, so a budget that forbade every drain would only
    delay the cluster's maintenance.
    """
    if workload.nodes == 1:
        return ()  # a budget of one pod would forbid every drain
    fewest = min(workload.min_nodes, workload.nodes - 1)
    budget = contexts.PodDisruptionBudget(
        **_named(workload, target), selector=trainers(workload.run), min_available=fewest
    )
    return (budget,)


def _claims(workload: Workload, target: ClusterTarget) -> tuple[TemplateContext, ...]:
    """Return the templates of the pods' claims, where the cluster gives devices by claims."""
    return tuple(
        contexts.ResourceClaimTemplate(
            name=placement.claim_template(workload.run, name),
            namespace=target.namespace,
            labels=run_labels(workload),
            request=request,
        )
        for name, request in placement.device_requests(target).items()
    )


def _named(workload: Workload, target: ClusterTarget) -> dict[str, Any]:
    return {
        "name": workload.run,
        "namespace": target.namespace,
        "labels": {**run_labels(workload), **workload.wishes},
    }
