"""The search for resources with cloudrec's tags or names, and the removal of orphaned ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.app.accounts import OtherAccountError, check_account
from cloudrec.app.records import known_clusters, regions_of
from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Condition, Graph
from cloudrec.errors import UsageError
from cloudrec.providers.base.audit import UNMANAGED, Audit
from cloudrec.providers.base.protocol import AuditsAccount, audited
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.graph import Observed
    from cloudrec.engine.journal import ClusterRecord
    from cloudrec.providers.base.protocol import Provider


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A resource that was found, and whether a cluster claims it.

    `claim` is "known" if this home's journal has the cluster, "alive" if the cluster's control plane exists
    (another machine may have created it), and empty for an orphaned resource.
    """

    found: Observed
    claim: str

    @property
    def place(self) -> tuple[str, str]:
        """Its cluster and region."""
        return self.found.cluster, self.found.location


@dataclass(frozen=True, kw_only=True)
class LeakSearch:
    """The result of a search.

    Attributes:
        leaks: the resources that were found.
        unsearched: sentences on what could not be searched, and why.
    """

    leaks: tuple[Leak, ...]
    unsearched: tuple[str, ...] = ()


def leaks(
    app: AppContext, provider_name: str, *, locations: Sequence[str] = (), everywhere: bool = False
) -> LeakSearch:
    """Return all resources with cloudrec's tags and names, or in the networks of its clusters.

    Args:
        app: the context of the use case.
        provider_name: the provider to search.
        locations: regions; if empty, the default region and those of the journal's clusters.
        everywhere: search every region that is enabled for the account, instead of `locations`.

    Raises:
        UsageError: the provider has no regions.
    """
    provider = app.provider(provider_name)
    if everywhere:
        if not isinstance(provider, AuditsAccount):
            raise UsageError(f"provider {provider_name!r} has no regions", remedy="leave --all-regions out")
        locations = provider.regions()
    records = known_clusters(app, provider_name)
    regions = regions_of(records)
    for each in records:
        _note_other_account(app, provider, each.record, each.cluster)
    searched = [*provider.search(None, locations=locations)]
    if regions and not locations:
        searched += provider.search(None, locations=regions)
    managed = list({(seen.kind, seen.identity): seen for seen in searched}.values())
    audits = [audited(provider, None, managed, locations=locations)]
    if regions and not locations:
        audits.append(audited(provider, None, managed, locations=regions))
    audit = Audit.of(audits)
    found = [*managed, *audit.found]
    known = {each.record.name for each in records}
    # By name only: better keep an orphaned resource than remove one of a cluster in another region.
    alive = {
        seen.cluster
        for seen in found
        if seen.kind == provider.control_plane and seen.condition in {Condition.READY, Condition.PENDING}
    }

    def claim(seen: Observed) -> str:
        if seen.cluster in known:
            return "known"
        return "alive" if seen.cluster in alive else ""

    return LeakSearch(
        leaks=tuple(Leak(found=seen, claim=claim(seen)) for seen in found), unsearched=audit.unsearched
    )


def _note_other_account(
    app: AppContext, provider: Provider, record: ClusterRecord, cluster: ClusterSpec
) -> None:
    """Report that a cluster is not searched, because it is in another account."""
    if record.account:
        try:
            check_account(provider, cluster, record)
        except OtherAccountError as error:
            app.report(f"not searched: {error.message}")


def remove_leaks(
    app: AppContext, provider_name: str, found: Sequence[Leak], *, decide: Callable[[Sequence[Leak]], bool]
) -> Sequence[Leak]:
    """Remove the orphaned resources that have a driver, cluster by cluster; return them.

    Args:
        app: the context of the use case.
        provider_name: the provider.
        found: the result of `leaks`.
        decide: called with the orphaned resources; False ends the use case without a change.

    Raises:
        ResourcesRemainError: names each remaining resource with its $/h.
    """
    orphaned = [leak for leak in found if not leak.claim and leak.found.kind != UNMANAGED]
    if not orphaned or not decide(orphaned):
        return orphaned
    places = sorted({leak.place for leak in orphaned})
    for title, location in places:
        resources = [leak.found for leak in orphaned if leak.place == (title, location)]
        _remove(app, provider_name, (title, location), resources)
    return orphaned


def _remove(
    app: AppContext, provider_name: str, place: tuple[str, str], resources: Sequence[Observed]
) -> None:
    """Remove the orphaned resources of one cluster in one region."""
    title, location = place
    provider = app.provider(provider_name)
    spec = ClusterSpec.model_construct(name=title, provider=provider_name, region=location or None)
    identities = {seen.identity for seen in resources}

    def search() -> list[Observed]:
        found = provider.search(title or None, locations=[location] if location else ())
        return [seen for seen in found if seen.identity in identities]

    with app.cluster_lock(title or "stray"):
        destroy(
            plan_removal(title, resources, keep_data=False),
            Graph.of([]),
            app.engine(provider.drivers(spec)),
            search,
            kinds=provider.kinds,
            settle_s=provider.settle_s,
        )
