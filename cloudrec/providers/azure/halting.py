"""Scaling what trains to no nodes, with no more permissions than that takes: the guard's are few."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from cloudrec.cloud.driver import is_ours
from cloudrec.engine.graph import TAG_KEY, Condition
from cloudrec.errors import PreflightError
from cloudrec.provider import Halt
from cloudrec.providers.azure import aks, errors, identity, operations
from cloudrec.providers.azure.node_pools import GPU
from cloudrec.providers.azure.rows import group_name

if TYPE_CHECKING:
    from cloudrec.providers.azure.client import Azure

_BUSY = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})


def client_id(azure: Azure, title: str) -> str:
    """Return the id of the client that the guard is; PreflightError where the cluster has none."""
    name = group_name(title)
    identities = azure.client("managedidentity").user_assigned_identities
    row = azure.get(identities.get, name, f"{name}-{identity.GUARD}")
    if row is None:
        raise PreflightError(
            f"cluster {title!r} has no identity for a guard", remedy=f"cloudrec up azure --cluster {title}"
        )
    return str(row.client_id)


def halt(azure: Azure, title: str) -> Halt:
    """Ask for no nodes in each GPU pool of a cluster; what AKS is at work on is left for later."""
    name = group_name(title)
    calls = azure.client(aks.SERVICE).agent_pools
    pools, left = list[str](), list[str]()
    for row in azure.rows(calls.list, name, name):
        if not row.count or not _trains(row, title):
            continue
        why = _scaled(azure, name, row)
        if why:
            left.append(f"pool {row.name}: {why}")
        else:
            pools.append(f"{name}/{row.name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def _trains(row: Any, title: str) -> bool:  # noqa: ANN401 - the SDK's model
    tags = row.tags or {}
    return is_ours(tags, title) and str(tags.get(TAG_KEY, "")).partition("/")[0] == GPU


def _scaled(azure: Azure, name: str, row: Any) -> str:  # noqa: ANN401 - the SDK's model
    """Ask for no nodes; return why not where AKS does not do it now."""
    if aks.told_by(row)[0] is Condition.PENDING:
        return "AKS is still at work on it"
    wanted = azure.models(aks.SERVICE).AgentPool(row.as_dict())
    wanted.count = 0
    matches = MatchConditions.IfNotModified if row.e_tag else None
    put = azure.client(aks.SERVICE).agent_pools.begin_create_or_update
    try:
        operations.begin(put, name, name, row.name, wanted, etag=row.e_tag, match_condition=matches)
    except HttpResponseError as error:
        if errors.is_absent(error):
            return ""
        if error.status_code in _BUSY:
            return f"AKS is still at work on it ({errors.code(error)})"
        raise
    return ""
