"""The audit of an account: resources with cloudrec's tags or names, or in its networks, without a driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.providers.base.audit import Audit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.engine.graph import Observed
    from cloudrec.providers.gcp.api.client import Gcp


def audit(account: Gcp, cluster: str | None, managed: Sequence[Observed]) -> Audit:
    """Return the resources that no driver manages in one region."""
    del account, cluster, managed
    return Audit()


def regions(account: Gcp) -> Sequence[str]:
    """Return the regions that are enabled for the account."""
    return [account.given_region]
