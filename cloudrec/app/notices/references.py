"""What the keeper's pod needs for notifications: references to Secrets, and ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.keeper.note import VARIABLES
from cloudrec.launchers.kubernetes.secrets import DEFAULT

if TYPE_CHECKING:
    from cloudrec.spec.models import NotifySpec


def secrets_of(notify: NotifySpec | None) -> dict[str, str]:
    """Return SECRET/KEY of each secret, by the variable in which the keeper reads it."""
    if notify is None:
        return {}
    return {VARIABLES[key]: whole(reference) for key, reference in notify.secrets.items()}


def whole(reference: str) -> str:
    """Return a reference as SECRET/KEY: a key alone is one of cloudrec's own Secret."""
    return reference if "/" in reference else f"{DEFAULT}/{reference}"


def mail_ports(notify: NotifySpec | None) -> tuple[int, ...]:
    """Return the port of the mail server; none without one."""
    if notify is None or notify.smtp is None:
        return ()
    return (int(notify.smtp.rpartition(":")[2]),)
