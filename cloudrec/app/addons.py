"""What a Kubernetes cluster needs to train: installed after `up`, looked at, and removed before `down`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloudrec.app.guarding import guard_of
from cloudrec.cluster import addons as engine
from cloudrec.cluster import health
from cloudrec.cluster.drain import drain
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.image.records import newest
from cloudrec.kube.client import Kube
from cloudrec.kube.errors import UnreachableError
from cloudrec.kube.target import Target
from cloudrec.manifests import namespace_objects
from cloudrec.pod.guard import NAME as GUARD

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.cluster.addons import Installed
    from cloudrec.provider import Access, Finding
    from cloudrec.spec.models import ClusterSpec

_CRON_JOB = "batch/v1/CronJob"


def is_kubernetes(access: Access) -> bool:
    """Whether a cluster is one of Kubernetes, by what its access tells."""
    return "kubeconfig" in access.details


@contextmanager
def opened(app: AppContext, cluster: ClusterSpec) -> Iterator[tuple[Kube, Target]]:
    """Reach a cluster's API; UsageError where it is none of Kubernetes, PreflightError where it is not up."""
    access = app.provider(cluster.provider).access(cluster)
    if not is_kubernetes(access):
        raise UsageError(
            f"cluster {cluster.title!r} is this machine, which needs no add-ons",
            remedy="name a cluster on a cloud with --cluster",
        )
    target = Target.of(access.details)
    with Kube.connect(target) as kube:
        yield kube, target


def equip(app: AppContext, cluster: ClusterSpec) -> None:
    """Install what a cluster that has just come up needs; one that does not answer from here is told of."""
    if _are_left_alone(app, cluster):
        return
    access = app.provider(cluster.provider).access(cluster)
    if not is_kubernetes(access):
        return
    target = Target.of(access.details)
    app.report("looking which add-ons the cluster needs")  # a minute, where its endpoint has no name yet
    try:
        with Kube.connect(target) as kube:
            engine.converge(kube, target, cluster.title, cluster.owner, app.report, clock=app.clock)
            hold_to_end(app, cluster, kube, target, image=image_for(app, access))
    except UnreachableError as error:
        app.report(
            f"its add-ons are not installed: {error.message}. From a machine that reaches it: "
            f"cloudrec addons install --cluster {cluster.title}"
        )


def image_for(app: AppContext, access: Access) -> str:
    """Return the image that was last pushed from here for a cluster, by digest; empty where none was."""
    repository = str(access.details.get("image_repository", ""))
    found = newest(app.home, repository) if repository else None
    return f"{found.repository}@{found.digest}" if found else ""


def hold_to_end(app: AppContext, cluster: ClusterSpec, kube: Kube, target: Target, *, image: str) -> None:
    """Have the cluster's own guard end it when its time has come, even if this machine is gone by then.

    Args:
        app: what every use case works with.
        cluster: as the journal has it, with its end.
        kube: the cluster.
        target: the same, as manifests see it.
        image: what the guard runs from; without one it is installed by the first run.
    """
    if not image and cluster.expires is not None:
        app.report(f"its guard, to end it at {cluster.expires}, comes with the first run or a pushed image")
        return
    objects = guard_of(app.provider(cluster.provider), cluster, image=image) if image else ()
    if not objects:  # no end, any more
        if kube.get(_CRON_JOB, GUARD, namespace=target.namespace) is not None:
            kube.delete(_CRON_JOB, GUARD, namespace=target.namespace)
        return
    for each in (*namespace_objects(target, cluster.title, cluster.owner), *objects):
        kube.apply(each)


def guard_run(app: AppContext, cluster: ClusterSpec, *, image: str) -> None:
    """Have the guard in place before a run begins, where the cluster has an end."""
    if cluster.expires is None or _are_left_alone(app, cluster):
        return
    with opened(app, cluster) as (kube, target):
        hold_to_end(app, cluster, kube, target, image=image)


def installed(app: AppContext, cluster: ClusterSpec) -> Sequence[Installed]:
    """Return the add-ons that a cluster has, whoever installed them."""
    with opened(app, cluster) as (kube, _):
        return engine.listed(kube)


def wanted(app: AppContext, cluster: ClusterSpec, name: str | None) -> Sequence[str]:
    """Return what `install` would install, each with its version."""
    with opened(app, cluster) as (_, target):
        found = engine.needed(target) if name is None else [engine.addon_of(name)]
        return [f"{addon.name} {addon.version}" for addon in found]


def install(
    app: AppContext, cluster: ClusterSpec, name: str | None, *, sha256: str = "", force: bool = False
) -> Sequence[Installed]:
    """Install one add-on, or what the cluster needs where none is named; return what is there then.

    Raises:
        UsageError: there is no such add-on.
        PreflightError: it cannot be fetched, its hash is not right, or an object is somebody else's.
    """
    with app.cluster_lock(cluster.title), opened(app, cluster) as (kube, target):
        if name is None:
            engine.converge(kube, target, cluster.title, cluster.owner, app.report, clock=app.clock)
        else:
            engine.install(
                kube,
                name,
                target,
                cluster=cluster.title,
                owner=cluster.owner,
                report=app.report,
                sha256=sha256,
                force=force,
                clock=app.clock,
            )
        return engine.listed(kube)


def uninstall(
    app: AppContext, cluster: ClusterSpec, name: str, *, force: bool = False
) -> Sequence[Installed]:
    """Remove one add-on that cloudrec has installed; return what is there then."""
    with app.cluster_lock(cluster.title), opened(app, cluster) as (kube, _):
        engine.remove(kube, name, report=app.report, force=force)
        return engine.listed(kube)


def examine(app: AppContext, cluster: ClusterSpec, environment: Mapping[str, str]) -> Sequence[Finding]:
    """Look at what a run needs of a cluster that is up, and at the settings that a user gives it.

    Args:
        app: what every use case works with.
        cluster: the cluster.
        environment: the variables that runs are given.
    """
    access = app.provider(cluster.provider).access(cluster)
    if not is_kubernetes(access):
        return app.provider(cluster.provider).preflight(cluster)
    with opened(app, cluster) as (kube, target):
        return [*health.check(kube, target), *health.settings(environment, target.fabric)]


def empty(app: AppContext, cluster: ClusterSpec) -> None:
    """Remove what controllers in a cluster have made outside it, before it goes; what is in the way is told.

    A cluster that is half made, or cannot be reached from here, is no reason to keep it: what stays is
    swept for afterwards.
    """
    if _are_left_alone(app, cluster):
        return
    try:
        access = app.provider(cluster.provider).access(cluster)
        if access.is_adopted or not is_kubernetes(access):
            return  # whose owner has load balancers and disks of his own
        app.report("looking in the cluster for what has something outside it")
        with Kube.connect(Target.of(access.details)) as kube:
            drain(kube, app.report, clock=app.clock)
    except PreflightError:
        return  # it is not wholly up, or private: nothing in it is known
    except CloudrecError as error:
        app.report(f"the cluster is not drained: {error.message}")


def _are_left_alone(app: AppContext, cluster: ClusterSpec) -> bool:
    """Whether nothing inside a cluster is to be touched; `down` reads no spec, so the variable counts too."""
    return app.environment.get("CLOUDREC_CLUSTER_ADDONS", cluster.addons) == "none"
