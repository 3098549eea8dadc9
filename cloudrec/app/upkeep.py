"""Clusters: up, down, what there is, what is left, and whether all is well."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.app.addons import empty, equip
from cloudrec.app.choosing import cluster_to_remove, stranger
from cloudrec.app.lifetime import Past, is_over, price_of, tagged_end, with_end
from cloudrec.app.running import stop_run
from cloudrec.engine.apply import apply
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Graph, Observed, Resource
from cloudrec.engine.plan import Step, merge
from cloudrec.engine.plan import plan as make_plan
from cloudrec.errors import CloudrecError, PreflightError, UsageError
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
    from cloudrec.provider import Finding, Offer, Provider


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
    expires: str | None = None
    problem: str = ""  # why the cloud could not be asked


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
    with app.cluster_lock(cluster.title):
        _refuse_other_provider(app, cluster)
        blocking = [finding for finding in provider.preflight(cluster) if not finding.ok and finding.blocks]
        if blocking:
            raise _unfit(blocking)
        searched = _searched(provider, cluster)
        cluster = with_end(
            cluster,
            hourly_usd=price_of(provider.resources(cluster)),
            past=_past(app, provider, cluster.title),
            tagged=tagged_end(searched, provider.control_plane),
            now=datetime.now(UTC),
        )
        graph = Graph.of(provider.resources(cluster))
        context = app.engine(provider.drivers(cluster))
        plan = make_plan(
            cluster.title,
            graph,
            context,
            known=app.journal.known(cluster.title),
            searched=searched,
            settle_s=provider.settle_s,
        )
        if decide(plan):
            app.journal.put_cluster(cluster.title, provider.name, cluster.model_dump(mode="json"))
            apply(plan, graph, context, settle_s=provider.settle_s)
            equip(app, cluster)
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
    cluster = cluster_to_remove(app, provider_name, cluster_name)
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
        empty(app, cluster)
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


def clusters(app: AppContext, name: str | None = None) -> Sequence[ClusterView]:
    """Return every cluster that this machine knows of, or the one named, with what exists of it now."""
    return [_view(app, record) for record in app.journal.clusters() if name in {None, record.name}]


def expired(app: AppContext, provider_name: str) -> Sequence[ClusterSpec]:
    """Return the clusters of a provider whose end has come, by the journal and by what is tagged."""
    now = datetime.now(UTC)
    found = {
        record.name: ClusterSpec.model_validate(record.request)
        for record in app.journal.clusters()
        if record.provider == provider_name
    }
    over = {name for name, spec in found.items() if is_over(spec.expires, now)}
    provider = app.provider(provider_name)
    strangers: dict[str, list[Observed]] = {}
    for seen in provider.search(None):
        if seen.cluster and seen.cluster not in found:
            strangers.setdefault(seen.cluster, []).append(seen)
    for name, things in strangers.items():
        if is_over(tagged_end(things, provider.control_plane), now):
            over.add(name)
            found[name] = stranger(provider_name, things[0])
    return [found[name] for name in sorted(over)]


def catalog(app: AppContext, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
    """Return what a provider has, with prices; `refresh` asks the cloud for them."""
    return app.provider(cluster.provider).catalog(cluster, refresh=refresh)


def doctor(app: AppContext, cluster: ClusterSpec) -> Sequence[Finding]:
    """Make every preflight check of a provider."""
    provider = app.provider(cluster.provider)
    provider.check(cluster)
    return provider.preflight(cluster)


def _past(app: AppContext, provider: Provider, title: str) -> Past | None:
    """What was asked for before under this name."""
    for record in app.journal.clusters():
        if record.name == title and not record.is_down:
            spec = ClusterSpec.model_validate(record.request)
            budgeted = spec.budget_usd is not None  # else nobody asks what it cost
            return Past(cluster=spec, hourly_usd=price_of(provider.resources(spec)) if budgeted else 0.0)
    return None


def _searched(provider: Provider, cluster: ClusterSpec) -> Sequence[Observed]:
    """Search by tag where the spec says that the cluster is."""
    return provider.search(cluster.title, locations=provider.locations(cluster))


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
    cluster = ClusterSpec.model_validate(record.request)
    problem = ""
    found: Sequence[Observed] = app.journal.known(record.name)
    try:
        provider = app.provider(record.provider)
        resources = provider.resources(cluster)
        found = _searched(provider, cluster)
        state = _state(record, resources, {seen.key for seen in found})
    except CloudrecError as error:  # no credentials, no network: the journal still knows something
        state, problem = "UNREACHABLE", error.message
    return ClusterView(
        name=record.name,
        provider=record.provider,
        owner=cluster.owner,
        state=state,
        resources=found,
        hourly_usd=sum(seen.hourly_usd for seen in found),
        created=record.created,
        expires=cluster.expires,
        problem=problem,
    )


def _state(record: ClusterRecord, resources: Sequence[Resource], keys: AbstractSet[str]) -> str:
    """READY: all there; DOWN: taken down, its data kept; INCOMPLETE: something is missing."""
    if record.is_down:
        return "DOWN"
    there = all(
        any(each.key in keys for each in resource.candidates) if resource.candidates else resource.key in keys
        for resource in resources
        if not resource.is_shared
    )
    return "READY" if there else "INCOMPLETE"


def _unfit(blocking: Sequence[Finding]) -> PreflightError:
    lines = [
        f"{finding.check}: {finding.found}" + (f"; needed: {finding.needed}" if finding.needed else "")
        for finding in blocking
    ]
    return PreflightError("\n".join(lines), remedy=blocking[0].remedy or None)
