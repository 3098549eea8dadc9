"""What managed clusters require of `up`, and runs of managed clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.providers.base.access import KubernetesAccess
from cloudrec.providers.base.offers import CAPACITY_TYPES, SPOT
from cloudrec.providers.base.protocol import SizesPools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cloudrec.providers.base.access import Access
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec


def check_managed(provider: Provider, cluster: ClusterSpec) -> None:
    """Raise SpecError for a managed cluster whose runs the keeper could not move from pool to pool."""
    if not cluster.managed:
        return
    if not isinstance(provider, SizesPools):
        raise SpecError(
            f"cluster.managed is true, but provider {provider.name!r} creates no nodes",
            remedy="leave --managed out",
        )
    if cluster.addons == "none":
        raise SpecError(
            "cluster.managed needs the keeper, which cluster.addons: none leaves out",
            remedy="leave --managed or cluster.addons out",
        )
    if cluster.capacity not in ("on-demand", "spot", "spot-first"):
        raise SpecError(
            f"cluster.managed does not work with cluster.capacity {cluster.capacity}: its nodes cannot be "
            "exchanged for others",
            remedy="use --capacity spot-first, spot or on-demand",
        )
    types = list(dict.fromkeys(offer.instance_type for offer in provider.offers(cluster)))
    if len(types) > 1:
        # The pods of a run are made for one machine: its GPUs, its cards, its memory.
        raise SpecError(
            f"cluster.managed needs one instance type; the candidates have {', '.join(types)}",
            remedy=f"name one, such as --instance-types {types[0]}",
        )


def with_managed(
    provider: Provider, cluster: ClusterSpec, known: ClusterSpec | None, *, has_guard: bool
) -> ClusterSpec:
    """Return the spec with whether the cluster is managed, if its user has not said so.

    A new cluster that may have spot nodes is managed, if its keeper can move runs between all candidates. An
    existing cluster stays as it is.

    Args:
        provider: the cluster's provider.
        cluster: what is asked for.
        known: the existing cluster; None for a new one.
        has_guard: whether add-ons are installed, with the guard, whose part the keeper is.
    """
    if cluster.managed is not None:
        return cluster
    if known is not None:
        return cluster.model_copy(update={"managed": bool(known.managed)})
    is_managed = has_guard and isinstance(provider, SizesPools) and SPOT in CAPACITY_TYPES[cluster.capacity]
    wanted = cluster.model_copy(update={"managed": is_managed})
    try:
        check_managed(provider, wanted)
        if is_managed:
            provider.resources(wanted)
    except SpecError:
        # It cannot be managed: an error that it has without a keeper too is raised later.
        return cluster.model_copy(update={"managed": False})
    return wanted


def refuse_wishes(cluster: ClusterSpec, access: Access, settings: Mapping[str, object]) -> None:
    """Raise SpecError for a deadline or a highest price that no keeper would keep."""
    if isinstance(access, KubernetesAccess) and access.target.is_managed:
        return
    if given := [name for name in ("deadline", "work", "max_price") if settings.get(name)]:
        raise SpecError(
            f"cluster {cluster.title!r} has no managed nodes, so nothing would keep {' and '.join(given)}",
            remedy="leave --deadline, --work and --max-price out, or create the cluster with --managed",
        )
