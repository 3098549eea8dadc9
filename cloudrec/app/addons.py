"""The add-ons and the guard of a cluster: installed after `up`, and checked; the drain before `down`."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from cloudrec.app.access import excluded, refuse_unreachable
from cloudrec.app.guard import has_guard, hold_to_end, is_installed
from cloudrec.app.reach.machines import lacks_machines
from cloudrec.app.reach.runs import image_for
from cloudrec.app.readiness import (
    ADDONS,
    BRIEFLY_S,
    GUARD,
    answers,
    lacks_addons,
    lacks_guard,
    missing_of,
    not_yet,
    still_lacks,
    update_missing,
)
from cloudrec.errors import CloudrecError, PreflightError, UsageError
from cloudrec.findings import Finding
from cloudrec.kubernetes.addons import manage as engine
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import ApiUnreachableError, KubeError
from cloudrec.kubernetes.client.wire import PATIENCE_S
from cloudrec.kubernetes.drain import drain
from cloudrec.kubernetes.health import health
from cloudrec.kubernetes.namespaces import prepare
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.facts import facts_of
from cloudrec.providers.base.protocol import ProbesStorage, closed_api

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.journal import Missing
    from cloudrec.kubernetes.addons.manage import Installed
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.providers.base.access import Access
    from cloudrec.spec.models import ClusterSpec


@contextmanager
def opened(app: AppContext, cluster: ClusterSpec) -> Iterator[tuple[Kube, ClusterTarget]]:
    """Connect to a cluster's API.

    Raises:
        UsageError: it is not a Kubernetes cluster.
        PreflightError: the cluster is not up.
    """
    access = app.provider(cluster.provider).access(cluster)
    if not isinstance(access, KubernetesAccess):
        raise UsageError(
            f"cluster {cluster.title!r} is not a Kubernetes cluster; it needs no add-ons",
            remedy="name a cluster on a cloud with --cluster",
        )
    refuse_unreachable(app, cluster, access)
    target = access.target
    with Kube.connect(target) as kube:
        yield kube, target


def equip(app: AppContext, cluster: ClusterSpec) -> tuple[Missing, ...]:
    """Install the add-ons and the guard of a new cluster; return what it still lacks, with the reasons."""
    if are_left_alone(app, cluster):
        _report_left_alone(app, cluster)
        return ()
    closed = closed_api(app.provider(cluster.provider), cluster)
    try:
        access = app.provider(cluster.provider).access(cluster)
        if not isinstance(access, KubernetesAccess):
            return ()
        app.report("checking which add-ons the cluster needs")
        target = access.target
        with Kube.connect(target, patience_s=BRIEFLY_S if closed else PATIENCE_S) as kube:
            return _equipped(app, cluster, kube, access)
    except CloudrecError as error:
        is_guarded = has_guard(app.provider(cluster.provider), cluster)
        guard = [lacks_guard(error, cluster, closed)] if is_guarded else []
        return (lacks_addons(error, cluster, closed), *guard)


def lacks_until_equipped(app: AppContext, cluster: ClusterSpec) -> tuple[Missing, ...]:
    """Return what a cluster lacks until `equip` has run; recorded first, so that a killed `up` leaves it."""
    return () if are_left_alone(app, cluster) else not_yet(cluster)


def _equipped(
    app: AppContext, cluster: ClusterSpec, kube: Kube, access: KubernetesAccess
) -> tuple[Missing, ...]:
    """Install the add-ons and the guard, each even if the other fails; ApiUnreachableError without an API."""
    target = access.target
    missing: list[Missing] = []
    try:
        # An adopted cluster's namespace and account belong to its owner, or `up` made them as resources.
        if not access.is_adopted:
            prepare(kube, target, cluster.title, cluster.owner)
        engine.converge(kube, target, cluster.title, cluster.owner, app.report, clock=app.clock)
        missing += still_lacks(engine.lacking(kube, target, clock=app.clock), cluster)
        _serve_metrics(app, cluster, kube, target)
    except ApiUnreachableError:
        raise
    except CloudrecError as error:
        missing.append(lacks_addons(error, cluster, None))
    try:
        guard = hold_to_end(app, cluster, kube, target, image=image_for(app, access), wait=True)
    except ApiUnreachableError:
        raise
    except CloudrecError as error:
        guard = lacks_guard(error, cluster, None)
    return (*missing, *([guard] if guard else []))


def _serve_metrics(app: AppContext, cluster: ClusterSpec, kube: Kube, target: ClusterTarget) -> None:
    """Let those who collect metrics in the cluster find what serves them, if the cluster has metrics."""
    if cluster.metrics == "off":
        return
    facts = facts_of(cluster.provider) if cluster.metrics == "managed" else None
    engine.install_metrics(
        kube,
        target,
        facts.metrics_addons if facts is not None else (),
        cluster=cluster.title,
        owner=cluster.owner,
        report=app.report,
        clock=app.clock,
    )


def _report_left_alone(app: AppContext, cluster: ClusterSpec) -> None:
    app.report("its add-ons are not changed: cluster.addons (or CLOUDREC_CLUSTER_ADDONS) is none")
    if cluster.expires:
        app.report(
            f"the cluster has no guard that removes it at {cluster.expires}: run "
            f"`cloudrec down {cluster.provider} --expired --yes` from cron"
        )


def renew_end(app: AppContext, cluster: ClusterSpec) -> None:
    """Set the new expiry in an existing guard before nodes are created: it would end them by the old one."""
    if are_left_alone(app, cluster):
        return
    try:
        access = app.provider(cluster.provider).access(cluster)
        if not isinstance(access, KubernetesAccess):
            return
        target = access.target
        with Kube.connect(target) as kube:
            if is_installed(kube, target):
                hold_to_end(app, cluster, kube, target, image="")
    except KubeError as error:
        app.report(f"the guard of cluster {cluster.title!r} still has the old expiry: {error.message}")
    except PreflightError:
        return  # the cluster is not up yet, so it has no guard


def _hold(
    app: AppContext,
    cluster: ClusterSpec,
    kube: Kube,
    target: ClusterTarget,
    *,
    image: str,
    wait: bool = False,
) -> None:
    """Install or update the guard, and record in the journal whether it is missing."""
    missing = hold_to_end(app, cluster, kube, target, image=image, wait=wait)
    if are_left_alone(app, cluster):
        return
    # A guard that was updated just now is not ready for a moment.
    if missing is None or wait or any(each.what == GUARD for each in missing_of(app, cluster.title)):
        update_missing(app, cluster.title, GUARD, [missing] if missing else [])
        for each in (missing,) if missing else ():
            app.report(f"{each.what}: {each.reason}; {each.remedy}")


def prepare_run(app: AppContext, cluster: ClusterSpec, access: Access, *, image: str) -> None:
    """Create what a run needs: a namespace, a service account, and a guard if the cluster has an expiry.

    Args:
        app: the context of the use case.
        cluster: the journal's specification, with the expiry.
        access: the access to the cluster.
        image: an image that contains the guard; empty if the run's pods install theirs.
    """
    if not isinstance(access, KubernetesAccess):
        return
    cluster = cluster.model_copy(update={"expires": access.expires or cluster.expires})
    is_ours = not are_left_alone(app, cluster)
    is_lacking = is_ours and any(each.what == ADDONS for each in missing_of(app, cluster.title))
    is_guarded = is_ours and has_guard(app.provider(cluster.provider), cluster)
    if access.is_adopted and not is_guarded and not is_lacking:
        return
    with opened(app, cluster) as (kube, target):
        if not access.is_adopted:  # see `_equipped`
            prepare(kube, target, cluster.title, cluster.owner)
        if is_guarded or is_lacking:
            _hold(app, cluster, kube, target, image=image)
        if is_lacking:
            _note_missing(app, cluster, kube, target)


def installed(app: AppContext, cluster: ClusterSpec) -> Sequence[Installed]:
    """Return the add-ons of a cluster, including those that were not installed by cloudrec."""
    with opened(app, cluster) as (kube, _):
        return engine.listed(kube)


def wanted(app: AppContext, cluster: ClusterSpec, name: str | None) -> Sequence[str]:
    """Return the names and versions of the add-ons that `install` would install."""
    with opened(app, cluster) as (_, target):
        found = engine.needed(target) if name is None else [engine.addon_of(name)]
        return [f"{addon.name} {addon.version}" for addon in found]


def install(
    app: AppContext, cluster: ClusterSpec, name: str | None, *, sha256: str = "", force: bool = False
) -> Sequence[Installed]:
    """Install one add-on, or all that the cluster needs if `name` is None; return the installed add-ons.

    Raises:
        UsageError: there is no such add-on.
        PreflightError: it cannot be fetched, its hash is wrong, or an object has another owner.
    """
    with app.cluster_lock(cluster.title), opened(app, cluster) as (kube, target):
        if name is None:
            engine.converge(kube, target, cluster.title, cluster.owner, app.report, clock=app.clock)
            image = image_for(app, app.provider(cluster.provider).access(cluster))
            _hold(app, cluster, kube, target, image=image, wait=True)
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
        _note_missing(app, cluster, kube, target)
        return engine.listed(kube)


def _note_missing(
    app: AppContext, cluster: ClusterSpec, kube: Kube, target: ClusterTarget, *, removed: str = ""
) -> None:
    """Update the journal's list of the add-ons that a cluster lacks; `removed` names one just removed."""
    if not are_left_alone(app, cluster):
        problems = engine.lacking(kube, target, clock=app.clock, removed=removed)
        lacks = still_lacks(problems, cluster)
        update_missing(app, cluster.title, ADDONS, lacks)


def uninstall(
    app: AppContext, cluster: ClusterSpec, name: str, *, force: bool = False
) -> Sequence[Installed]:
    """Remove one add-on that cloudrec has installed; return the remaining add-ons."""
    with app.cluster_lock(cluster.title), opened(app, cluster) as (kube, target):
        engine.remove(kube, name, report=app.report, force=force, clock=app.clock)
        _note_missing(app, cluster, kube, target, removed=name)
        return engine.listed(kube)


def examine(app: AppContext, cluster: ClusterSpec, environment: Mapping[str, str]) -> Sequence[Finding]:
    """Check a running cluster's requirements for runs, and the user's variables for them.

    Args:
        app: the context of the use case.
        cluster: the cluster.
        environment: the environment variables of runs.
    """
    lacking = [_finding(each) for each in (*missing_of(app, cluster.title), *_machines(app, cluster))]
    access = app.provider(cluster.provider).access(cluster)
    if not isinstance(access, KubernetesAccess):
        return [*lacking, *app.provider(cluster.provider).preflight(cluster)]
    try:
        with opened(app, cluster) as (kube, target):
            found = [*lacking, *health.check(kube, target), *health.settings(environment, target.fabric)]
        return [*found, *_storage(app, cluster)]
    except ApiUnreachableError as error:
        closed = closed_api(app.provider(cluster.provider), cluster)
        silent = lacks_addons(error, cluster, closed)
        return [*lacking, _finding(replace(silent, what="Kubernetes API"))]


def _machines(app: AppContext, cluster: ClusterSpec) -> Sequence[Missing]:
    """Return the nodes that do not run, as the cloud's machines show it."""
    provider = app.provider(cluster.provider)
    found = provider.search(cluster.title, locations=provider.locations(cluster))
    known = missing_of(app, cluster.title)
    return lacks_machines(cluster, provider.resources(cluster), found, known)


def _storage(app: AppContext, cluster: ClusterSpec) -> list[Finding]:
    """Return whether the runs' storage can be used, if cloudrec did not create it."""
    provider = app.provider(cluster.provider)
    finding = provider.probe_storage(cluster) if isinstance(provider, ProbesStorage) else None
    return [finding] if finding is not None else []


def _finding(missing: Missing) -> Finding:
    return Finding(check=missing.what, ok=False, found=missing.reason, remedy=missing.remedy)


def empty(app: AppContext, cluster: ClusterSpec) -> None:
    """Remove the cloud resources that a cluster's controllers have created, before the cluster itself.

    Errors are only reported: an incomplete or unreachable cluster must still be removed. A search by tag
    afterwards finds the resources that remain.
    """
    if are_left_alone(app, cluster):
        return
    try:
        access = app.provider(cluster.provider).access(cluster)
        if access.is_adopted or not isinstance(access, KubernetesAccess):
            return  # an adopted cluster's load balancers and disks belong to its owner
        if not answers(access.target) and excluded(app.provider(cluster.provider), cluster, app.environment):
            return  # no later try from here succeeds; the search by tag finds what its controllers created
        app.report("looking for load balancers and disks that the cluster's objects own")
        with Kube.connect(access.target) as kube:
            drain(kube, app.report, clock=app.clock)
    except PreflightError:
        return  # it is incomplete, or private: its objects cannot be listed
    except CloudrecError as error:
        app.report(f"the cluster is not drained: {error.message}")


def are_left_alone(app: AppContext, cluster: ClusterSpec) -> bool:
    """Whether cloudrec must not change objects in the cluster; a variable counts, too: `down` has no spec."""
    return app.environment.get("CLOUDREC_CLUSTER_ADDONS", cluster.addons) == "none"
