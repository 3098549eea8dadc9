"""What exists in a cloud under our tags or names, whether a cluster still claims it, and its removal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.engine.destroy import destroy, plan_removal
from cloudrec.engine.graph import Condition, Graph
from cloudrec.spec.models import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.graph import Observed


@dataclass(frozen=True, kw_only=True)
class Leak:
    """One thing that was found, and who claims it.

    `claim` is "known" where this home's journal has the cluster, "alive" where the cluster's control plane
    exists (it may be another machine's), and empty where nobody does: then it only costs.
    """

    found: Observed
    claim: str

    @property
    def place(self) -> tuple[str, str]:
        """Its cluster and region."""
        return self.found.cluster, self.found.location


def leaks(app: AppContext, provider_name: str, *, locations: Sequence[str] = ()) -> Sequence[Leak]:
    """Search for all that exists under our tags and names.

    Args:
        app: what every use case works with.
        provider_name: whose.
        locations: regions; when empty, the usual one and wherever a cluster known here is.
    """
    provider = app.provider(provider_name)
    records = [record for record in app.journal.clusters() if record.provider == provider_name]
    regions = sorted({region for record in records if (region := record.request.get("region"))})
    searched = [*provider.search(None, locations=locations)]
    if regions and not locations:
        searched += provider.search(None, locations=regions)
    found = list({(seen.kind, seen.identity): seen for seen in searched}.values())
    known = {record.name for record in records}
    # By name alone: better a stray too many than a thing of a cluster that lives, wherever that is.
    alive = {
        seen.cluster
        for seen in found
        if seen.kind == provider.control_plane and seen.condition in {Condition.READY, Condition.PENDING}
    }

    def claim(seen: Observed) -> str:
        if seen.cluster in known:
            return "known"
        return "alive" if seen.cluster in alive else ""

    return [Leak(found=seen, claim=claim(seen)) for seen in found]


def remove_leaks(
    app: AppContext, provider_name: str, found: Sequence[Leak], *, decide: Callable[[Sequence[Leak]], bool]
) -> Sequence[Leak]:
    """Remove what nobody claims, cluster by cluster; return it.

    Args:
        app: what every use case works with.
        provider_name: whose.
        found: from `leaks`.
        decide: is shown what goes; False goes no further.

    Raises:
        ResourcesRemainError: names each thing that is left, with its $/h.
    """
    stray = [leak for leak in found if not leak.claim]
    if not stray or not decide(stray):
        return stray
    places = sorted({leak.place for leak in stray})
    for title, location in places:
        things = [leak.found for leak in stray if leak.place == (title, location)]
        _remove(app, provider_name, (title, location), things)
    return stray


def _remove(app: AppContext, provider_name: str, place: tuple[str, str], things: Sequence[Observed]) -> None:
    """Remove what one cluster has left in one region."""
    title, location = place
    provider = app.provider(provider_name)
    spec = ClusterSpec.model_construct(name=title, provider=provider_name, region=location or None)
    identities = {seen.identity for seen in things}

    def search() -> list[Observed]:
        found = provider.search(title or None, locations=[location] if location else ())
        return [seen for seen in found if seen.identity in identities]

    with app.cluster_lock(title or "stray"):
        destroy(
            plan_removal(title, things, keep_data=False),
            Graph.of([]),
            app.engine(provider.drivers(spec)),
            search,
            kinds=provider.kinds,
            settle_s=provider.settle_s,
        )
