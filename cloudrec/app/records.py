"""The clusters of the journal, each as far as its record can be read: a damaged one does not hide others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, SpecError
from cloudrec.spec.requests import read_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.journal import ClusterRecord
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec


@dataclass(frozen=True, kw_only=True)
class KnownCluster:
    """A cluster of the journal.

    Attributes:
        record: its row.
        cluster: its specification, as far as it can be read.
        problem: the part that cannot be read, and why; empty if the whole record can be read.
    """

    record: ClusterRecord
    cluster: ClusterSpec
    problem: str = ""

    def whole(self) -> ClusterSpec:
        """Return the specification; CloudrecError if a part cannot be read."""
        if self.problem:
            raise CloudrecError(
                f"the journal's record of cluster {self.record.name!r} cannot be used: {self.problem}",
                remedy=f"use the version of cloudrec that made it, or remove it: "
                f"`cloudrec down --cluster {self.record.name}` uses what the record still shows",
            )
        return self.cluster


def known_clusters(
    app: AppContext, provider_name: str | None = None, name: str | None = None
) -> list[KnownCluster]:
    """Return the journal's clusters: all, a provider's, or the one of this name."""
    return [
        _known(record)
        for record in app.journal.clusters()
        if provider_name in {None, record.provider} and name in {None, record.name}
    ]


def fitted(provider: Provider, known: KnownCluster) -> KnownCluster:
    """Remove the settings that this version of the provider refuses, and name them in the problem."""
    try:
        provider.check(known.cluster)
    except SpecError as error:
        refused = set(error.keys) & known.cluster.settings.keys()
        if not refused:
            return known
        kept = {key: value for key, value in known.cluster.settings.items() if key not in refused}
        named = f"its settings {', '.join(sorted(refused))} are refused: {error.message}"
        return KnownCluster(
            record=known.record,
            cluster=known.cluster.model_copy(update={"settings": kept}),
            problem="; ".join(filter(None, (known.problem, named))),
        )
    return known


def regions_of(known: Sequence[KnownCluster]) -> list[str]:
    """Return the regions in the specifications of clusters."""
    return sorted({each.cluster.region for each in known if each.cluster.region})


def _known(record: ClusterRecord) -> KnownCluster:
    request = read_request(
        record.request, name=record.name, provider=record.provider, version=record.request_version
    )
    problem = "; ".join(filter(None, (record.problem, request.problem)))
    return KnownCluster(record=record, cluster=request.cluster, problem=problem)
