"""The guard's service account, which is separate from the runs': no run may have the guard's rights."""

from __future__ import annotations

ACCOUNT = "cloudrec-guard"


def account_of(service_account: str) -> str:
    """Return the guard's account as NAMESPACE/NAME; its namespace is that of the runs' account."""
    return f"{service_account.partition('/')[0]}/{ACCOUNT}"
