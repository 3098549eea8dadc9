"""A cluster's guard: its Kubernetes objects, its installation, and whether it runs."""

from __future__ import annotations

import secrets
from copy import deepcopy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec import providers
from cloudrec.app.money.tariffs import tariffs_of
from cloudrec.app.notices.references import mail_ports, secrets_of
from cloudrec.app.readiness import guard_not_ready
from cloudrec.errors import PreflightError
from cloudrec.keeper.note import NAME, Note
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.kubernetes.health.causes import pod_cause
from cloudrec.kubernetes.manifests import Guarding, guard_objects
from cloudrec.kubernetes.manifests.guard import GUARD, KINDS, POLICY_KINDS
from cloudrec.kubernetes.manifests.names import CLUSTER, ROLE
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.facts import facts_of
from cloudrec.providers.base.protocol import CanScaleToZero, CreatesClusters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cloudrec.app.context import AppContext
    from cloudrec.engine.clock import Clock
    from cloudrec.engine.journal import Missing
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget, PodSetup
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec

_CRON_JOB = "batch/v1/CronJob"
_READY_S = 600.0  # for an image and the packages
_LEAST_S = 120.0  # in real time, where a stand-in's clock is fast: the pod's processes are not faster
_POLL_S = 1.0


def has_guard(provider: Provider, cluster: ClusterSpec) -> bool:
    """Return whether a cluster should have a guard.

    One that cloudrec creates always has: the guard meters its cost and ends the pods of dead nodes. In an
    adopted one it only keeps an end, sends notifications and serves metrics.
    """
    if cluster.notify is not None or cluster.metrics != "off":
        return True
    has_end = cluster.expires is not None or cluster.budget_usd is not None
    return has_end or isinstance(provider, CreatesClusters)


def guard_of(
    provider: Provider,
    cluster: ClusterSpec,
    *,
    image: str,
    setup: PodSetup | None = None,
    hourly_usd: float | None = None,
    began: float | None = None,
) -> tuple[dict[str, Any], ...]:
    """Return the guard's objects in the order of applying them; none for a cluster without a guard.

    Args:
        provider: the cluster's provider.
        cluster: the journal's specification, with the expiry.
        image: the guard's image.
        setup: what its pod installs in it first; None for a trainer's image, which contains the guard.
        hourly_usd: the cluster's cost per hour; None if it is not known.
        began: the start of that cost, in seconds since the epoch; None if it is not known.

    Raises:
        PreflightError: the cluster is not up, or has no nodes that can be scaled to zero.
    """
    if not has_guard(provider, cluster):
        return ()
    access = provider.access(cluster)
    if not isinstance(provider, CanScaleToZero) or not isinstance(access, KubernetesAccess):
        raise PreflightError(
            f"cluster {cluster.title!r} has no guard: it has no node pool that can be scaled to zero"
        )
    settings = provider.guard(cluster)
    facts = facts_of(provider.name)
    pool_label = facts.pool_label if facts is not None and not access.is_adopted else ""
    since = datetime.fromtimestamp(began, UTC).isoformat() if began is not None else ""
    guarding = Guarding(
        cluster=cluster.title,
        owner=cluster.owner,
        image=image,
        setup=setup,
        note=Note(
            cluster=settings.cluster,
            hourly_usd=hourly_usd,
            began=since,
            pool_label=pool_label,
            tariffs=tariffs_of(provider.resources(cluster)) if pool_label else (),
            notify=cluster.notify,
            storage=access.storage if cluster.managed else "",
        ).to_json(),
        secrets=secrets_of(cluster.notify),
        ports=mail_ports(cluster.notify),
        metrics_port=0 if cluster.metrics == "off" else cluster.metrics_port,
        meters=bool(pool_label),
        manages=bool(cluster.managed),
        environment=settings.environment,
        annotations=settings.annotations,
        pod_labels=settings.pod_labels,
    )
    return guard_objects(access.target, guarding)


def hold_to_end(
    app: AppContext,
    cluster: ClusterSpec,
    kube: Kube,
    target: ClusterTarget,
    *,
    image: str,
    wait: bool = False,
) -> Missing | None:
    """Install or update the guard, which ends the cluster at its expiry and meters it without this machine.

    Args:
        app: the context of the use case.
        cluster: the journal's specification, with the expiry.
        kube: the connection to the cluster.
        target: the cluster's target for manifests.
        image: an image that contains the guard. If it is empty, an installed guard keeps its own; a new one
            runs in a published image with Python, and installs the rest.
        wait: wait until it runs; otherwise look once.

    Returns:
        What is missing if it does not run.
    """
    provider = app.provider(cluster.provider)
    if not has_guard(provider, cluster):
        _remove(kube, target, cluster.title)
        return None
    image = image or _own_image(kube, target)
    setup = None if image else _setup(cluster)
    if setup is not None:
        from cloudrec.image.code import deliver  # noqa: PLC0415 - packing the code takes a moment

        image = cluster.base_image or _python()
        deliver(kube, target, setup.digest, cluster=cluster.title, owner=cluster.owner)
    began = next((each.created for each in app.journal.clusters() if each.name == cluster.title), None)
    objects = guard_of(provider, cluster, image=image, setup=setup, began=began)
    made = apply_guard(kube, objects, app.report)
    if setup is None:
        return None
    _end_others(kube, target, cluster.title, setup)
    if _is_at_work(kube, target, cluster.title):
        return None
    if not wait:
        return guard_not_ready(cluster, "none of its pods is ready")
    app.report("waiting for the guard's first round")
    return _first_round(kube, target, cluster, made[-1], app.clock)


def apply_guard(
    kube: Kube, objects: Iterable[Mapping[str, Any]], report: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Apply the guard's objects, in their order, and return them.

    A cluster without its policy has a guard that may do too much; a cluster without a guard costs money after
    its end. So a policy that this identity may not create is a warning.
    """
    made, refused = list[dict[str, Any]](), list[str]()
    for each in objects:
        try:
            made.append(kube.apply(each))
        except DeniedError as error:
            if each["kind"] not in POLICY_KINDS:
                raise
            refused.append(error.message)
    if refused:
        why = "; ".join(refused)
        report(f"warning: the guard's policy is not applied, so it may change more than it needs: {why}")
    return made


def is_installed(kube: Kube, target: ClusterTarget) -> bool:
    """Return whether a cluster has a guard."""
    return kube.get(_CRON_JOB, NAME, namespace=target.namespace) is not None


def _python() -> str:
    from cloudrec.image.bases import PYTHON  # noqa: PLC0415 - as above

    return PYTHON


def _setup(cluster: ClusterSpec) -> PodSetup:
    from cloudrec.image.bases import BASE, setup_for  # noqa: PLC0415 - as above

    extra = providers.needs(cluster.provider).extra
    return setup_for(BASE, uris=(), extra=extra, index=cluster.package_index)


def _remove(kube: Kube, target: ClusterTarget, cluster: str) -> None:
    """Remove all objects of an adopted cluster's guard, including its permissions."""
    for kind in KINDS:
        found = kube.get(kind, NAME, namespace=target.namespace)
        labels = found["metadata"].get("labels") or {} if found else {}
        if found and labels.get(CLUSTER) == cluster:
            kube.delete(kind, NAME, namespace=target.namespace, uid=found["metadata"]["uid"])


def _own_image(kube: Kube, target: ClusterTarget) -> str:
    """Return the image of an installed guard; empty if there is none, or if its pod installs the guard."""
    found = kube.get(_CRON_JOB, NAME, namespace=target.namespace)
    if found is None:
        return ""
    spec = found["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return "" if spec.get("initContainers") else str(spec["containers"][0]["image"])


def _end_others(kube: Kube, target: ClusterTarget, cluster: str, setup: PodSetup) -> None:
    """End the pods of the guard's earlier versions; the next one begins within minutes."""
    for job in kube.list("Job", namespace=target.namespace, labels=_labels(cluster)):
        (first, *_) = job["spec"]["template"]["spec"].get("initContainers") or [{}]
        if setup.digest not in (first.get("args") or ()):
            metadata = job["metadata"]
            kube.delete("Job", metadata["name"], namespace=target.namespace, uid=metadata["uid"])


def _is_at_work(kube: Kube, target: ClusterTarget, cluster: str) -> bool:
    """Return whether a pod of the guard is ready: it has made a round in the last minutes."""
    return any(
        _is_ready(pod) for pod in kube.list("Pod", namespace=target.namespace, labels=_labels(cluster))
    )


def _first_round(
    kube: Kube, target: ClusterTarget, cluster: ClusterSpec, cron: dict[str, Any], clock: Clock
) -> Missing | None:
    """Make one round now, and wait for its end; return what is missing if it fails.

    It shows that the guard's pods find a node, an image and their packages, and may read their orders.
    """
    name = f"{NAME}-first-{secrets.token_hex(2)}"
    job = kube.apply(_round(cron, name))
    limit = clock.now() + max(_READY_S, _LEAST_S * clock.speed)
    try:
        while True:
            live = kube.get("Job", name, namespace=target.namespace) or {}
            status = live.get("status") or {}
            if status.get("succeeded") or _is_at_work(kube, target, cluster.title):
                return None
            if status.get("failed") or clock.now() > limit:
                labels = {"batch.kubernetes.io/job-name": name}
                pods = kube.list("Pod", namespace=target.namespace, labels=labels)
                causes = [str(cause) for pod in pods if (cause := pod_cause(pod))]
                return guard_not_ready(cluster, causes[-1] if causes else "its first round did not end")
            clock.sleep(_POLL_S * clock.speed)
    finally:
        kube.delete("Job", name, namespace=target.namespace, uid=job["metadata"]["uid"])


def _round(cron: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a Job of one round, which the CronJob owns."""
    template = deepcopy(cron["spec"]["jobTemplate"]["spec"]["template"])
    for container in template["spec"]["containers"]:
        container.pop("args", None)  # without them it ends after a round
    metadata = cron["metadata"]
    owner = {
        "apiVersion": cron["apiVersion"],
        "kind": cron["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": metadata["labels"],
            "ownerReferences": [owner],
        },
        "spec": {"backoffLimit": 0, "activeDeadlineSeconds": int(_READY_S), "template": template},
    }


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _labels(cluster: str) -> dict[str, str]:
    return {CLUSTER: cluster, ROLE: GUARD}
