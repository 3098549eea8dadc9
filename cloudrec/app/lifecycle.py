"""Clusters: up, down, what there is, what is left, and whether all is well."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cloudrec.app.access import refusal, resolved
from cloudrec.app.accounts import OtherAccountError, check_account, check_found
from cloudrec.app.addons import are_left_alone, empty, equip, lacks_until_equipped, renew_end
from cloudrec.app.choosing import cluster_to_remove, stranger
from cloudrec.app.managed.check import check_managed, with_managed
from cloudrec.app.managed.view import keeper_view
from cloudrec.app.money.blocks import bought, check_block, lacks_nodes, upfront_of, with_block
from cloudrec.app.money.costs import cost_now, final_reading, spent_usd
from cloudrec.app.money.lifetime import (
    Past,
    check_end,
    check_rate,
    is_over,
    price_of,
    settled_end,
    tagged_end,
    with_end,
    with_kept_end,
)
from cloudrec.app.money.silence import silence
from cloudrec.app.notices.launching import check_notified, report_charges
from cloudrec.app.reach.machines import lacks_machines
from cloudrec.app.reach.private import check_private
from cloudrec.app.reach.size import ClusterSize, size_of
from cloudrec.app.records import fitted, known_clusters
from cloudrec.app.run.data_tier import planned
from cloudrec.app.run.manage import stop_run
from cloudrec.app.sharing.storage import check_unused, note_user, storage_text, with_storage
from cloudrec.engine.apply import apply
from cloudrec.engine.cost import Cost
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Graph, Observed, Resource, cost_of
from cloudrec.engine.journal import Missing
from cloudrec.engine.plan import PlanStep, merge
from cloudrec.engine.plan import plan as make_plan
from cloudrec.errors import CloudrecError, DataError, PreflightError, SpecError, UsageError
from cloudrec.home import storage_error
from cloudrec.keeper.ends import is_movable
from cloudrec.observe.runs import list_runs
from cloudrec.providers.base.protocol import AsksPrices, CreatesClusters, ProbesStorage, account_of, audited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from cloudrec.app.context import AppContext
    from cloudrec.app.managed.view import KeeperView
    from cloudrec.app.records import KnownCluster
    from cloudrec.app.run.data_tier import DatasetWish
    from cloudrec.engine.context import Context
    from cloudrec.engine.journal import ClusterRecord
    from cloudrec.engine.plan import Plan
    from cloudrec.findings import Finding
    from cloudrec.observe.runs import RunView
    from cloudrec.providers.base.audit import Audit
    from cloudrec.providers.base.protocol import Offer, Provider
    from cloudrec.spec.models import ClusterSpec


_USABLE = {"READY", "NOT READY"}  # the states of a cluster all of whose resources exist


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """A cluster as `status` shows it."""

    name: str
    provider: str
    owner: str
    state: str
    resources: Sequence[Observed]
    cost: Cost
    created: float | None
    expires: str | None = None
    spent_usd: float | None = None  # what it has cost so far, as metered; None if that is unknown
    missing: Sequence[Missing] = ()  # what it lacks before runs can use it
    keeper: KeeperView | None = None  # of a managed cluster
    problem: str = ""  # why the cloud could not be asked, or its record in the journal not be read
    region: str = ""  # where it is; empty without a cloud
    budget_usd: float | None = None  # the most it may cost in all
    size: ClusterSize = field(default_factory=ClusterSize)  # its GPU nodes
    alarm: str = ""  # that its guard or keeper is silent, so that its end may not be enforced

    @property
    def budget_left_usd(self) -> float | None:
        """What is left of its budget; None without a budget, or if its cost is not known."""
        if self.budget_usd is None or self.spent_usd is None:
            return None
        return max(self.budget_usd - self.spent_usd, 0.0)


@dataclass(frozen=True, kw_only=True)
class Removal:
    """What `down` would do, or has done.

    Attributes:
        provider: the cluster's provider.
        plan: the engine's plan.
        runs: the runs that end with the cluster.
        keep_data: whether buckets and file systems stay.
        after: key -> keys of what is removed before it, as far as the specification says.
        unsearched: sentences on what the search at the end could not look at.
    """

    provider: str
    plan: Plan
    runs: Sequence[RunView]
    keep_data: bool
    after: Mapping[str, AbstractSet[str]]
    unsearched: tuple[str, ...] = ()


def up(
    app: AppContext,
    cluster: ClusterSpec,
    *,
    decide: Callable[[Plan], bool],
    force: bool = False,
    most_upfront_usd: float | None = None,
    dataset: DatasetWish | None = None,
) -> Plan:
    """Create or reconcile a cluster; run again it continues where it stopped, and changes nothing once done.

    What the cluster lacks at the end is in the journal: see `readiness.missing_of`.

    Args:
        app: what every use case works with.
        cluster: what is asked for.
        decide: is shown the plan; False goes no further (a dry run), DeclinedError when the user says no.
        force: create a private cluster although this machine does not reach its API.
        most_upfront_usd: the highest price of a block of capacity, in USD; None for any.
        dataset: the dataset that the nodes must have room for; None for no check.

    Raises:
        NoCapacityError: no block of capacity is offered, or none at this price.
        PreflightError: something that must be there first is not.
        OtherAccountError: the cluster is in another account than the credentials are of.
        DeclinedError: the user said no.
    """
    check_end(cluster, app.now())
    provider = app.provider(cluster.provider, complete=True)
    provider.check(cluster)
    _check_autostop(provider, cluster)
    check_notified(cluster)
    check_managed(provider, cluster)
    with app.cluster_lock(cluster.title):
        _refuse_other_provider(app, cluster)
        known = next(iter(known_clusters(app, name=cluster.title)), None)
        record = known.record if known is not None else None
        if record is not None and record.account:  # else its own checks say better what credentials lack
            check_account(provider, cluster, record)
        cluster = with_storage(app, provider, cluster, known)
        cluster = with_managed(
            provider, cluster, known.cluster if known else None, has_guard=not are_left_alone(app, cluster)
        )
        cluster, offer = with_block(provider, cluster, most_usd=most_upfront_usd)
        blocking = [finding for finding in provider.preflight(cluster) if not finding.ok and finding.blocks]
        if blocking:
            raise _unfit(blocking)
        _renew_prices(app, provider, cluster)
        searched = _searched(provider, cluster)
        if record is not None:
            check_found(app, provider, cluster, record, searched)
        past = _past(app, provider, cluster.title, searched)
        tagged = tagged_end(searched, provider.control_plane)
        check_private(app, provider, cluster, force=force)
        data = planned(app, provider, cluster, dataset)
        cluster = asked = _with_access(app, provider, cluster)
        cost = price_of(provider.resources(cluster))
        check_rate(cluster, cost)
        cluster = with_end(
            cluster,
            cost=cost,
            past=past,
            tagged=tagged,
            now=app.now(),
        )
        check_block(cluster, cost, app.now())
        report_charges(app, cluster)
        graph, context, plan = _planned(app, provider, cluster, searched)
        plan = replace(_foreseen(app, provider, cluster, plan), upfront=upfront_of(offer), data=data)
        if decide(plan):
            _check_storage(provider, cluster)
            if offer is not None:
                cluster = bought(provider, cluster, offer)
                app.report(f"bought: {cluster.block.id if cluster.block else ''}")
                graph, context, again = _planned(app, provider, cluster, searched)
                plan = replace(plan, actions=again.actions)
            _record(app, provider, cluster)
            before = past.cluster.expires if past else tagged
            if before and cluster.expires != before:
                renew_end(app, cluster)
            apply(plan, graph, context, settle_s=provider.settle_s)
            if asked.expires is None:
                cluster = _settle_end(app, provider, cluster, past)
            app.journal.set_missing(cluster.title, (*lacks_nodes(cluster), *equip(app, cluster)))
    return plan


def _record(app: AppContext, provider: Provider, cluster: ClusterSpec) -> None:
    """Journal what is asked for, and write into the storage of another cluster that this one uses it."""
    app.journal.put_cluster(
        cluster.title,
        provider.name,
        cluster.model_dump(mode="json"),
        account=account_of(provider, cluster),
        missing=lacks_until_equipped(app, cluster),
    )
    note_user(provider, cluster, is_user=True)


def _planned(
    app: AppContext, provider: Provider, cluster: ClusterSpec, found: Sequence[Observed]
) -> tuple[Graph, Context, Plan]:
    """Return a cluster's graph, the engine's context, and the plan for what a search has found."""
    graph, context = Graph.of(provider.resources(cluster)), app.engine(provider.drivers(cluster))
    plan = make_plan(
        cluster.title,
        graph,
        context,
        known=app.journal.known(cluster.title),
        searched=found,
        settle_s=provider.settle_s,
    )
    return graph, context, plan


def _settle_end(app: AppContext, provider: Provider, cluster: ClusterSpec, past: Past | None) -> ClusterSpec:
    """Move the end of a budget to what the nodes that were made cost; return the spec with it."""
    if not is_movable(cluster):
        return cluster
    spent = 0.0 if past is None else None
    if past is not None and not are_left_alone(app, cluster):
        spent = spent_usd(app, cluster.title)
    if spent is None:
        return cluster
    now, found = app.now(), _searched(provider, cluster)
    rate = cost_of(found)
    settled = settled_end(cluster, rate=rate, spent_usd=spent, now=now)
    if settled.expires == cluster.expires:
        return cluster
    app.report(f"the budget of ${cluster.budget_usd:g} lasts until {settled.expires}, at {rate.text} now")
    graph, context, plan = _planned(app, provider, settled, found)
    _record(app, provider, settled)
    apply(plan, graph, context, settle_s=provider.settle_s)
    return settled


def _foreseen(app: AppContext, provider: Provider, cluster: ClusterSpec, plan: Plan) -> Plan:
    """Return the plan with its region, its end, and how long it takes as a rule."""
    end = datetime.fromisoformat(cluster.expires) if cluster.expires else None
    plan = replace(
        plan,
        expires=cluster.expires,
        left_s=(end - app.now()).total_seconds() if end is not None else 0.0,
        standby=next((each for each in provider.resources(cluster) if each.is_standby), None),
        storage=storage_text(provider, cluster),
    )
    if not isinstance(provider, AsksPrices):
        return plan
    made = {
        (action.resource.kind if action.resource is not None else "")
        for action in plan.changes
        if action.step in {PlanStep.CREATE, PlanStep.REPLACE}
    }
    taken = [minutes for kind, minutes in provider.usual_minutes.items() if kind in made]
    return replace(
        plan,
        region=provider.price_region(cluster),
        minutes=(sum(low for low, _ in taken), sum(high for _, high in taken)) if taken else None,
    )


def _check_storage(provider: Provider, cluster: ClusterSpec) -> None:
    """Raise PreflightError if nothing can be written to storage that cloudrec did not create."""
    finding = provider.probe_storage(cluster) if isinstance(provider, ProbesStorage) else None
    if finding is not None and not finding.ok:
        raise _unfit([finding])


def _renew_prices(app: AppContext, provider: Provider, cluster: ClusterSpec) -> None:
    """Ask the cloud for current prices; without them the plan has those of the table, with their dates."""
    reason = provider.renew_prices(cluster) if isinstance(provider, AsksPrices) else ""
    if reason:
        app.report(f"note: the cloud gave no current prices, so the plan has earlier ones: {reason}")


def _with_access(app: AppContext, provider: Provider, cluster: ClusterSpec) -> ClusterSpec:
    """Return the spec with this machine's address in place of `auto`; report who will reach the API."""
    cluster, own = resolved(provider, cluster, app.environment)
    if own:
        app.report(f"the Kubernetes API admits {cluster.access}; this machine is {own}")
    return cluster


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
        OtherAccountError: the cluster is in another account than the credentials are of.
    """
    cluster = cluster_to_remove(app, provider_name, cluster_name)
    if cluster is None:
        return None
    provider = app.provider(cluster.provider, complete=True)
    with app.cluster_lock(cluster.title):
        record = None
        for known in known_clusters(app, cluster.provider, cluster.title):
            cluster, record = fitted(provider, known).cluster, known.record
        account = check_account(provider, cluster, record)
        searched = _searched(provider, cluster)
        check_unused(app, provider, cluster, searched, keep_data=keep_data)
        if record is not None:
            check_found(app, provider, cluster, record, searched)
        existing = merge(app.journal.known(cluster.title), searched)
        graph = _graph_to_remove(provider, cluster)
        removal = Removal(
            provider=provider.name,
            after=graph.needed_by(),
            plan=plan_removal(cluster.title, existing, keep_data=keep_data),
            runs=[run for run in list_runs(app.home.runs, of=cluster.title) if run.cluster == cluster.title],
            keep_data=keep_data,
        )
        if not decide(removal):
            return removal
        app.journal.set_account(cluster.title, account)
        # Without add-ons there is no guard, and so no meter.
        reading = None if are_left_alone(app, cluster) else final_reading(app, cluster.title)
        _end_runs(app, removal)
        empty(app, cluster)
        audits: list[Audit] = []

        def inspect() -> Sequence[Observed]:
            audits.append(audited(provider, cluster.title, (), locations=provider.locations(cluster)))
            return audits[-1].found

        destroy(
            removal.plan,
            graph,
            app.engine(provider.drivers(cluster)),
            lambda: _searched(provider, cluster),
            kinds=provider.kinds,
            settle_s=provider.settle_s,
            inspect=inspect,
        )
        removal = replace(removal, unsearched=audits[-1].unsearched)
        note_user(provider, cluster, is_user=False)
        if reading is not None:
            reading.close()
        _remove_kubeconfig(app.home.cluster(cluster.title))
        if any(action.step is PlanStep.KEEP for action in removal.plan.actions):
            app.journal.mark_down(cluster.title)
        else:
            app.journal.forget_cluster(cluster.title)
    return removal


def _remove_kubeconfig(folder: Path) -> None:
    """Remove the kubeconfig of a removed cluster; other files in the folder, such as kept data, remain."""
    with suppress(OSError):
        (folder / "kubeconfig").unlink(missing_ok=True)
        folder.rmdir()  # fails if the folder has other files


def forget(app: AppContext, name: str, *, decide: Callable[[Sequence[Observed]], bool]) -> bool:
    """Drop what the journal knows of a cluster; nothing is removed, and no cloud is asked.

    Args:
        app: what every use case works with.
        name: the cluster.
        decide: is shown what the journal knows, which may exist and cost; False keeps it.

    Returns:
        Whether it was dropped.

    Raises:
        UsageError: the journal knows no such cluster.
    """
    if not known_clusters(app, name=name):
        raise UsageError(
            f"the journal has no cluster {name!r}", remedy="`cloudrec status` lists all clusters"
        )
    with app.cluster_lock(name):
        agreed = decide(app.journal.known(name))
        if agreed:
            app.journal.forget_cluster(name)
    return agreed


def _graph_to_remove(provider: Provider, cluster: ClusterSpec) -> Graph:
    """Return the order of removal; where today's provider refuses the spec, kind by kind is order enough."""
    try:
        return Graph.of(provider.resources(cluster))
    except SpecError:
        return Graph.of([])


def recorded(app: AppContext, cluster: ClusterSpec) -> ClusterSpec:
    """Return the journal's specification of a cluster, for another `up`: with the end that it has now."""
    if not is_movable(cluster):
        return cluster
    return with_kept_end(cluster, _searched(app.provider(cluster.provider), cluster))


def clusters(app: AppContext, name: str | None = None) -> Sequence[ClusterView]:
    """Return every cluster that this machine knows of, or the one named, with what exists of it now."""
    return [_view(app, known) for known in known_clusters(app, name=name)]


def expired(app: AppContext, provider_name: str) -> Sequence[ClusterSpec]:
    """Return the clusters of a provider whose end has come, by the journal and by what is tagged."""
    now = app.now()
    # A record that cannot be read wholly may lack the cluster's expiry: its tags have it.
    found = {
        known.record.name: known.cluster
        for known in known_clusters(app, provider_name)
        if not known.problem or known.cluster.expires
    }
    provider = app.provider(provider_name)
    by_cluster: dict[str, list[Observed]] = {}
    for seen in provider.search(None):
        if seen.cluster:
            by_cluster.setdefault(seen.cluster, []).append(seen)
    over = {
        name
        for name, spec in found.items()
        if is_over(with_kept_end(spec, by_cluster.get(name, ())).expires, now)
    }
    for name, things in by_cluster.items():
        if name not in found and is_over(tagged_end(things, provider.control_plane), now):
            try:
                found[name] = stranger(provider_name, things[0])
            except DataError as error:  # one tag that another user wrote must not keep the others
                app.report(f"warning: {error.message}; {error.remedy}")
                continue
            over.add(name)
    return [found[name] for name in sorted(over)]


def catalog(app: AppContext, cluster: ClusterSpec, *, refresh: bool) -> Sequence[Offer]:
    """Return what a provider has, with prices; `refresh` asks the cloud for them."""
    return app.provider(cluster.provider).catalog(cluster, refresh=refresh)


def doctor(app: AppContext, cluster: ClusterSpec) -> Sequence[Finding]:
    """Make every preflight check of a provider."""
    provider = app.provider(cluster.provider, complete=True)
    provider.check(cluster)
    known = next(iter(known_clusters(app, name=cluster.title)), None)
    return provider.preflight(with_storage(app, provider, cluster, known))


def _past(app: AppContext, provider: Provider, title: str, found: Sequence[Observed]) -> Past | None:
    """What was asked for before under this name, with the end that the cloud keeps now."""
    for known in known_clusters(app, name=title):
        if not known.record.is_down:
            spec = with_kept_end(known.whole(), found)
            budgeted = spec.budget_usd is not None  # else no one asks what it cost
            return Past(cluster=spec, cost=price_of(provider.resources(spec)) if budgeted else Cost())
    return None


def _searched(provider: Provider, cluster: ClusterSpec) -> Sequence[Observed]:
    """Search by tag where the spec says that the cluster is."""
    return provider.search(cluster.title, locations=provider.locations(cluster))


def _check_autostop(provider: Provider, cluster: ClusterSpec) -> None:
    """Raise SpecError for an autostop that nothing would carry out."""
    if cluster.autostop is None:
        return
    if not isinstance(provider, CreatesClusters):
        raise SpecError(
            f"cluster.autostop is {cluster.autostop}, but provider {provider.name!r} creates no nodes",
            remedy="leave --autostop out",
        )
    if cluster.addons == "none":
        raise SpecError(
            "cluster.autostop needs the guard, which cluster.addons: none leaves out",
            remedy="leave --autostop or cluster.addons out",
        )


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


def _view(app: AppContext, known: KnownCluster) -> ClusterView:
    record, cluster, problem, spent, alarm = known.record, known.cluster, "", None, ""
    keeper: KeeperView | None = None
    missing, size, region = record.missing, ClusterSize(), cluster.region or ""
    found: Sequence[Observed] = app.journal.known(record.name)
    try:
        provider = app.provider(record.provider)
        known = fitted(provider, known)
        cluster = known.cluster
        if record.account:
            check_account(provider, cluster, record)
        found = _searched(provider, cluster)
        region = next(iter(provider.locations(cluster)), "") or region or _most_common_location(found)
        if not known.problem:
            resources = provider.resources(cluster)
            size = size_of(resources, found)
            state = _state(record, resources, {seen.key for seen in found})
            lacks = lacks_machines(cluster, resources, found, missing) if state in _USABLE else ()
            if state == "READY" and (cause := refusal(provider, cluster, app.environment)):
                state = "NOT READY"
                missing = (Missing(what="access", reason=cause.message, remedy=cause.remedy or ""),)
            elif state in _USABLE and not are_left_alone(app, cluster):
                metered = cost_now(app, known)
                spent = metered.ledger.usd if metered.ledger is not None else None
                alarm = silence(metered, app.now().timestamp())
                keeper = keeper_view(app, known)
            if lacks:
                state, missing = "NOT READY", (*lacks, *missing)
    except OtherAccountError as error:
        state, problem = "OTHER ACCOUNT", error.message
    except CloudrecError as error:  # no credentials, no network: the journal still knows something
        state, problem = "UNREACHABLE", error.message
    if known.problem:
        state = "UNREADABLE"
        problem = "; ".join(filter(None, (_unreadable(known), problem)))
    return ClusterView(
        name=record.name,
        provider=record.provider,
        owner=cluster.owner,
        state=state,
        resources=found,
        cost=cost_of(found),
        created=record.created,
        expires=with_kept_end(cluster, found).expires,
        spent_usd=spent,
        missing=missing,
        keeper=keeper,
        problem=problem,
        region=region,
        budget_usd=cluster.budget_usd,
        size=size,
        alarm=alarm,
    )


def _most_common_location(found: Sequence[Observed]) -> str:
    """Return where most resources are: the region of an `up` that took it from the environment."""
    places = Counter(each.location for each in found if each.location)
    return places.most_common(1)[0][0] if places else ""


def _unreadable(known: KnownCluster) -> str:
    return (
        f"its record in the journal cannot be used: {known.problem}; "
        f"`cloudrec down --cluster {known.record.name}` removes it anyway"
    )


def _state(record: ClusterRecord, resources: Sequence[Resource], keys: AbstractSet[str]) -> str:
    """READY: runs can use it; NOT READY: it lacks add-ons; INCOMPLETE: a resource; DOWN: its data is kept."""
    if record.is_down:
        return "DOWN"
    there = all(
        any(each.key in keys for each in resource.candidates) if resource.candidates else resource.key in keys
        for resource in resources
        if not resource.is_shared
    )
    if not there:
        return "INCOMPLETE"
    return "NOT READY" if record.missing else "READY"


def _unfit(blocking: Sequence[Finding]) -> PreflightError:
    lines = [
        f"{finding.check}: {finding.found}" + (f"; needed: {finding.needed}" if finding.needed else "")
        for finding in blocking
    ]
    return PreflightError("\n".join(lines), remedy=blocking[0].remedy or None)
