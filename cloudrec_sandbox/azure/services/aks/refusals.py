"""AKS's errors."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from cloudrec_sandbox.azure.arm.errors import ArmError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from cloudrec_sandbox.azure.services.compute.machines import Shortage


def invalid(message: str, code: str = "InvalidParameter") -> ArmError:
    """Return the error for a value that is not allowed."""
    return ArmError(code, message)


def in_progress(what: str, verb: str) -> ArmError:
    """Return the error for an operation in progress; `verb` is what it does."""
    return ArmError(
        "OperationNotAllowed",
        f"Operation is not allowed: Another {what} ({verb}) is in progress, please wait for it to finish "
        f"before "
        "starting a new operation. See https://aka.ms/aks-pending-operation for more details.",
        status=HTTPStatus.CONFLICT,
    )


def fixed(name: str, old: object, new: object) -> ArmError:
    """Return the error for a property that cannot change."""
    return ArmError(
        "PropertyChangeNotAllowed",
        f"Changing property '{name}' is not allowed: it is {old!r} and would be {new!r}.",
        more={"target": name},
    )


def refuse_changes(
    names: Iterable[str], read: Callable[[str], tuple[Any, Any]], *, prefix: str = "properties"
) -> None:
    """Refuse a change of any of `names`; `read` returns a name's old and new value, None if absent."""
    for name in names:
        old, new = read(name)
        if new is not None and not _same(old, new):
            raise fixed(f"{prefix}.{name}", old, new)


def _same(old: Any, new: Any) -> bool:  # noqa: ANN401 - JSON
    if isinstance(old, str) and isinstance(new, str):
        return old.lower() == new.lower()
    return bool(old == new) or (old is None and new in ([], "", False, "Regular"))


def short_of(shortage: Shortage, region: str) -> ArmError:
    """Return the error for a shortage of machines that AKS knows at once, with Compute's message."""
    if shortage.kind != "quota":
        return ArmError(shortage.code, shortage.message)
    return ArmError(
        "QuotaExceeded",
        f"Preflight validation check for resource(s) failed. Insufficient vcpu quota requested "
        f"{shortage.wanted}, "
        f"remaining {shortage.left} for family {shortage.family} for region {region}. If you want to "
        f"increase the "
        "quota, please follow this instruction: https://learn.microsoft.com/azure/quotas/view-quotas.",
    )


def stock_out(shortage: Shortage, scale_set: str) -> ArmError:
    """Return the error for a shortage of machines at the end of an operation."""
    code = "QuotaExceeded" if shortage.kind == "quota" else shortage.code
    name = scale_set.rpartition("/")[2]
    return ArmError(
        code,
        f'Code="{shortage.code}" Message="{shortage.message}" Target="{name}". For details on this '
        f"error, see "
        "https://aka.ms/aks/vmss-allocation-failure.",
    )
