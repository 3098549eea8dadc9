"""Who the guard in a cluster is: a service account of its own beside the runs', which no run may use."""

from __future__ import annotations

ACCOUNT = "cloudrec-guard"


def account_of(service_account: str) -> str:
    """Return the guard's account, NAMESPACE/NAME, by that of the runs."""
    return f"{service_account.partition('/')[0]}/{ACCOUNT}"
