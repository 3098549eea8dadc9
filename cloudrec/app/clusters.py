"""Clusters: up, down, what there is, what is left, and whether all is well."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec import providers
from cloudrec.app.runs import stop_run
from cloudrec.engine.apply import apply
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Graph, Observed
from cloudrec.engine.plan import Step, merge
from cloudrec.engine.plan import plan as make_plan
from cloudrec.errors import PreflightError, UsageError
from cloudrec.home import storage_error
from cloudrec.observe.runs import list_runs
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.app.context import AppContext
    from cloudrec.engine.journal import ClusterRecord
    from cloudrec.engine.plan import Plan
    from cloudrec.observe.runs import RunView
    from cloudrec.provider import Finding, Provider

_USUAL = ClusterSpec().provider  # what is meant when nobody names a provider


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """A cluster as `status` shows it."""

    name: str
    provider: str
    owner: str
    state: str
    resources: Sequence[Observed]
    hourly_usd: float
    created: float


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What `down` would do: the engine's plan, and the runs that end with the cluster."""

    plan: Plan
    runs: Sequence[RunView]
    keep_data: bool


def up(app: AppContext, cluster: ClusterSpec, *, decide: Callable[[Plan], bool]) -> Plan:
    """Create or converge a cluster; run again it goes on where it stopped, and changes nothing once done.

    Args:
        app: what every use case works with.
        cluster: what is asked for.
        decide: is shown the plan; False goes no further (a dry run), DeclinedError when the user says no.

    Raises:
        PreflightError: something that must be there first is not.
        DeclinedError: the user said no.
    """
    provider = app.provider(cluster.provider)
    provider.check(cluster)
    blocking = [finding for finding in provider.preflight(cluster) if not finding.ok and finding.blocks]
    if blocking:
        raise _unfit(blocking)
    with app.cluster_lock(cluster.title):
        _refuse_other_provider(app, cluster)
        graph = Graph.of(provider.resources(cluster))
        context = app.engine(provider.drivers(cluster))
        plan = make_plan(
            cluster.title,
            graph,
            context,
            known=app.journal.known(cluster.title),
            searched=_searched(provider, cluster),
            settle_s=provider.settle_s,
        )
        if decide(plan):
            app.journal.put_cluster(cluster.title, provider.name, cluster.model_dump(mode="json"))
            apply(plan, graph, context, settle_s=provider.settle_s)
    return plan


def down(
    app: AppContext,
    *,
    provider_name: str | None,
    cluster_name: str | None,
    keep_data: bool,
    decide: Callable[[Removal], bool],
) -> Removal | None:
    """Remove everything of one cluster, its runs included, and look whether anything is left.

    Returns:
        What was (or, where `decide` said to go no further, would be) removed; None when there is nothing.

    Raises:
        ResourcesRemainError: names each thing that is left, with its $/h.
        UsageError: several clusters fit.
    """
    cluster = _cluster_to_remove(app, provider_name, cluster_name)
    if cluster is None:
        return None
    provider = app.provider(cluster.provider)
    with app.cluster_lock(cluster.title):
        existing = merge(app.journal.known(cluster.title), _searched(provider, cluster))
        removal = Removal(
            plan=plan_removal(cluster.title, existing, keep_data=keep_data),
            runs=[run for run in list_runs(app.home.runs) if run.cluster == cluster.title],
            keep_data=keep_data,
        )
        if not decide(removal):
            return removal
        _end_runs(app, removal)
        destroy(
            removal.plan,
            Graph.of(provider.resources(cluster)),
            app.engine(provider.drivers(cluster)),
            lambda: _searched(provider, cluster),
            kinds=provider.kinds,
            settle_s=provider.settle_s,
        )
        if any(action.step is Step.KEEP for action in removal.plan.actions):
            app.journal.mark_down(cluster.title)
        else:
            app.journal.forget_cluster(cluster.title)
    return removal


def clusters(app: AppContext) -> Sequence[ClusterView]:
    """Return every cluster that this machine knows of, with what exists of it now."""
    return [_view(app, record) for record in app.journal.clusters()]


def leaks(app: AppContext, provider_name: str) -> Sequence[tuple[Observed, bool]]:
    """Search by tag for all that exists under our tags; with each, whether a cluster known here claims it.

    Looks where the provider looks by itself, and wherever a cluster known here is.
    """
    records = app.journal.clusters()
    regions = {record.request.get("region") for record in records if record.provider == provider_name}
    provider = app.provider(provider_name)
    found = list(provider.search(None))
    if regions - {None}:
        found += provider.search(None, locations=sorted(region for region in regions if region))
    claimed = {record.name for record in records}
    return [(seen, seen.cluster in claimed) for seen in {(s.kind, s.identity): s for s in found}.values()]


def doctor(app: AppContext, cluster: ClusterSpec) -> Sequence[Finding]:
    """Make every preflight check of a provider."""
    provider = app.provider(cluster.provider)
    provider.check(cluster)
    return provider.preflight(cluster)


def choose(app: AppContext, *, provider_name: str | None, cluster_name: str | None) -> ClusterSpec:
    """Return the cluster that a run is meant for: the one named, or the only one that fits.

    Raises:
        PreflightError: there is none; the remedy creates it.
        UsageError: several fit.
    """
    fitting = _fitting(app, provider_name, cluster_name)
    if not fitting:
        wanted = " ".join(
            ["cloudrec up", provider_name or _USUAL, *(["--cluster", cluster_name] if cluster_name else [])]
        )
        named = f"no cluster {cluster_name!r}" if cluster_name else "no cluster"
        of_provider = f" of provider {provider_name!r}" if provider_name else ""
        raise PreflightError(f"{named}{of_provider} is up", remedy=wanted)
    return _only(fitting)


def _fitting(app: AppContext, provider_name: str | None, cluster_name: str | None) -> Sequence[ClusterSpec]:
    return [
        ClusterSpec.model_validate(record.request)
        for record in app.journal.clusters()
        if provider_name in {None, record.provider} and cluster_name in {None, record.name}
    ]


def _only(fitting: Sequence[ClusterSpec]) -> ClusterSpec:
    if len(fitting) > 1:
        raise UsageError(
            f"{len(fitting)} clusters fit: {', '.join(cluster.title for cluster in fitting)}",
            remedy="name one with --cluster",
        )
    return fitting[0]


def _cluster_to_remove(
    app: AppContext, provider_name: str | None, cluster_name: str | None
) -> ClusterSpec | None:
    """Return the cluster to remove; with the journal lost, whatever a search by tag finds."""
    fitting = list(_fitting(app, provider_name, cluster_name))
    known = {cluster.title for cluster in fitting}
    searched = [provider_name] if provider_name else list(providers.names()) if cluster_name else [_USUAL]
    for name in searched:
        found = {seen.cluster for seen in app.provider(name).search(cluster_name)} - known
        fitting += [ClusterSpec(name=title, provider=name) for title in sorted(found)]
    return _only(fitting) if fitting else None


def _searched(provider: Provider, cluster: ClusterSpec) -> Sequence[Observed]:
    """Search by tag where the spec says that the cluster is."""
    return provider.search(cluster.title, locations=(cluster.region,) if cluster.region else ())


def _refuse_other_provider(app: AppContext, cluster: ClusterSpec) -> None:
    for record in app.journal.clusters():
        if record.name == cluster.title and record.provider != cluster.provider:
            raise UsageError(
                f"a cluster {record.name!r} of provider {record.provider!r} exists",
                remedy=f"choose another --cluster, or `cloudrec down --cluster {record.name}` first",
            )


def _end_runs(app: AppContext, removal: Removal) -> None:
    """Stop what still runs, and unless the data is kept remove the runs' folders."""
    for run in removal.runs:
        if not run.state.is_final:
            app.report(f"run {run.name}: stopping")
            stop_run(app, run.name)
        if not removal.keep_data:
            folder = app.home.run(run.name)
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise storage_error(folder, error) from error
            app.report(f"run {run.name}: gone")


def _view(app: AppContext, record: ClusterRecord) -> ClusterView:
    provider = app.provider(record.provider)
    cluster = ClusterSpec.model_validate(record.request)
    found = _searched(provider, cluster)
    graph = Graph.of(provider.resources(cluster))
    places = graph.places()  # of a choice, any candidate will do
    missing = graph.resources.keys() - {places.get(seen.key) for seen in found}
    return ClusterView(
        name=record.name,
        provider=record.provider,
        owner=cluster.owner,
        state=_state(record, missing),
        resources=found,
        hourly_usd=sum(seen.hourly_usd for seen in found),
        created=record.created,
    )


def _state(record: ClusterRecord, missing: AbstractSet[str]) -> str:
    """READY: all there; DOWN: taken down, its data kept; INCOMPLETE: something is missing."""
    if record.is_down:
        return "DOWN"
    return "INCOMPLETE" if missing else "READY"


def _unfit(blocking: Sequence[Finding]) -> PreflightError:
    lines = [
        f"{finding.check}: {finding.found}" + (f"; needed: {finding.needed}" if finding.needed else "")
        for finding in blocking
    ]
    return PreflightError("\n".join(lines), remedy=blocking[0].remedy or None)
