"""Nodes, events and leases."""

from __future__ import annotations

import ipaddress
from datetime import datetime
from typing import TYPE_CHECKING

from cloudrec_sandbox.kubernetes.objects import errors
from cloudrec_sandbox.kubernetes.rules.registry import Change, check

if TYPE_CHECKING:
    from cloudrec_sandbox.kubernetes.rules.problems import Problems

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@check("nodes")
def _node(change: Change, problems: Problems) -> None:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(change.spec.get("taints") or ()):
        path, key, effect = f"metadata.taints[{index}]", taint.get("key", ""), taint.get("effect", "")
        if not key:
            problems.invalid(f"{path}.key", key, "name part must be non-empty")
        if effect not in _EFFECTS:
            problems.unsupported(f"{path}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            problems.duplicate(path, taint)
        seen.add((key, effect))
    if text := change.spec.get("podCIDR"):
        try:
            ipaddress.ip_network(text, strict=False)
        except ValueError:
            problems.invalid("spec.podCIDRs[0]", text, "must be a valid CIDR value")
    before = change.old_spec.get("providerID")
    if before and change.spec.get("providerID") != before:
        problems.forbidden(
            "spec.providerID", 'node updates may not change providerID except from "" to valid'
        )


@check("events")
def _event(change: Change, problems: Problems) -> None:
    if change.old is not None:
        return
    space = change.new["metadata"].get("namespace", "")
    about = (change.new.get("involvedObject") or {}).get("namespace", "")
    # `ValidateEvent`: about an object without a namespace, an event is in `default`.
    if space != (about or "default"):
        problems.invalid("involvedObject.namespace", about, "does not match event.namespace")


@check("leases")
def _lease(change: Change, problems: Problems) -> None:
    if change.spec.get("leaseDurationSeconds", 1) <= 0:
        problems.invalid(
            "spec.leaseDurationSeconds", change.spec["leaseDurationSeconds"], "must be greater than 0"
        )
    for name in ("acquireTime", "renewTime"):
        if name in change.spec and not _is_time(change.spec[name]):
            what = f'parsing time "{change.spec[name]}" as "2006-01-02T15:04:05.000000Z07:00"'
            raise errors.bad_request(f'Lease in version "v1" cannot be handled as a Lease: {what}')


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
