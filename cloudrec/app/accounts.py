"""The account of a cluster: with the credentials of another account, a search does not find the cluster."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cloudrec.engine.graph import Condition
from cloudrec.errors import UsageError
from cloudrec.providers.base.protocol import account_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.engine.graph import Observed
    from cloudrec.engine.journal import ClusterRecord
    from cloudrec.providers.base.protocol import Provider
    from cloudrec.spec.models import ClusterSpec

_ENDED = {"deleting", "gone"}  # events after which a resource is expected not to exist


class OtherAccountError(UsageError):
    """A cluster is in another account than that of the current credentials."""


def check_account(provider: Provider, cluster: ClusterSpec, record: ClusterRecord | None) -> str:
    """Return the account of the current credentials; empty for a provider without accounts.

    Raises:
        OtherAccountError: the journal has another account for the cluster.
    """
    account = account_of(provider, cluster)
    if record is not None and record.account and record.account != account:
        raise OtherAccountError(
            f"cluster {record.name!r} is in {record.account}; the current credentials are for {account}",
            remedy=f"use the credentials of {record.account}; if the cluster is gone with its account, "
            f"`cloudrec down --cluster {record.name} --forget` removes it from the journal",
        )
    return account


def check_found(
    app: AppContext,
    provider: Provider,
    cluster: ClusterSpec,
    record: ClusterRecord,
    searched: Sequence[Observed],
) -> None:
    """Refuse to treat a cluster as deleted if it may be in another account.

    A search that finds nothing proves nothing if the journal does not contain the cluster's account; journals
    of earlier versions do not. In the right account, the missing resources are only reported.

    Args:
        app: the context of the use case.
        provider: the cluster's provider.
        cluster: the cluster's specification.
        record: its record in the journal.
        searched: the resources that a search has found.

    Raises:
        OtherAccountError: no resource of the journal was found, and the cluster's account is unknown.
    """
    account = account_of(provider, cluster)
    found = {seen.identity for seen in searched}
    known = [entry for entry in app.journal.known(cluster.title) if entry.identity]
    if not account or any(entry.identity in found for entry in known):
        return
    lost = _vanished(app, provider, cluster, known)
    if not lost:
        return
    counted = f"{len(lost)} resources, {lost[0].key} among them" if len(lost) > 1 else lost[0].key
    missing = f"the journal lists {counted} of cluster {record.name!r}; none of it was found in {account}"
    if record.account:
        app.report(f"{missing}: it was removed already")
        return
    raise OtherAccountError(
        f"{missing}, and its record, written by an earlier version of cloudrec, does not name its account",
        remedy="use the credentials of its account; if it was removed by other means, "
        f"`cloudrec down --cluster {record.name} --forget` removes it from the journal",
    )


def _vanished(
    app: AppContext, provider: Provider, cluster: ClusterSpec, known: Sequence[Observed]
) -> list[Observed]:
    """Return the journal's resources whose removal never began, if none exists; otherwise an empty list."""
    title = cluster.title
    drivers = provider.drivers(cluster)
    last = {event.key: event.event for event in app.journal.events(title)}
    made = [entry for entry in known if entry.kind in drivers and last.get(entry.key) not in _ENDED]
    context = app.engine(drivers)
    context.resume(title)
    for entry in made:
        driver = drivers[entry.kind]
        condition, _ = context.call(driver, partial(driver.condition, entry.kind, entry.identity))
        if condition is not Condition.GONE:
            return []
    return made
