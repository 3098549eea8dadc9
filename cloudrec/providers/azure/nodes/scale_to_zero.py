"""Sizes the GPU pools, and scales them to zero nodes, with only the permissions that the guard has."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from azure.core import MatchConditions
from azure.core.exceptions import HttpResponseError

from cloudrec.engine.graph import TAG_KEY, Condition
from cloudrec.errors import PreflightError
from cloudrec.providers.azure import errors
from cloudrec.providers.azure.api import aks, models, operations
from cloudrec.providers.azure.api.rows import group_name
from cloudrec.providers.azure.identity import identity
from cloudrec.providers.azure.nodes.node_pools import GPU
from cloudrec.providers.base.driver import is_ours
from cloudrec.providers.base.protocol import Halt, PoolSize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.providers.azure.api.client import Azure

_BUSY = frozenset({HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_FAILED})


def client_id(azure: Azure, title: str) -> str:
    """Return the client id of the guard's identity; PreflightError if the cluster has none."""
    name = group_name(title)
    identities = azure.managedidentity.user_assigned_identities
    row = azure.get(identities.get, name, f"{name}-{identity.GUARD}")
    if row is None:
        raise PreflightError(
            f"cluster {title!r} has no identity for a guard", remedy=f"cloudrec up azure --cluster {title}"
        )
    return str(row.client_id)


def halt(azure: Azure, title: str) -> Halt:
    """Begin to scale each GPU pool of a cluster to zero nodes.

    Returns:
        The scaled pools, and those that are left for a later call with the reason.
    """
    name = group_name(title)
    calls = azure.containerservice.agent_pools
    pools, left = list[str](), list[str]()
    for row in azure.rows(calls.list, name, name):
        if not row.count or not _trains(row, title):
            continue
        why = _scaled(azure, name, row, 0)
        if why:
            left.append(f"pool {row.name}: {why}")
        else:
            pools.append(f"{name}/{row.name}")
    return Halt(pools=tuple(pools), left=tuple(left))


def sizes(azure: Azure, title: str) -> Sequence[PoolSize]:
    """Return the size of each GPU pool of a cluster."""
    name = group_name(title)
    return [
        PoolSize(
            name=str(row.name),
            nodes=row.count or 0,
            problem=_problem(row),
            is_retried=False,  # a pool that could not grow is Failed until another write succeeds
            is_changing=aks.condition_of(row)[0] is Condition.PENDING,
        )
        for row in azure.rows(azure.containerservice.agent_pools.list, name, name)
        if _trains(row, title)
    ]


def resize(azure: Azure, title: str, pool: str, nodes: int) -> str:
    """Begin to give a pool another number of nodes; return why AKS cannot do so now, or an empty text."""
    name = group_name(title)
    row = azure.get(azure.containerservice.agent_pools.get, name, name, pool)
    if row is None or not _trains(row, title):
        return "it does not exist"
    return _scaled(azure, name, row, nodes)


def _problem(row: models.containerservice.AgentPool) -> str:
    """Return AKS's message about a pool that has failed; empty if it has not."""
    condition, reason = aks.condition_of(row)
    return reason if condition in {Condition.FAILED, Condition.UNAVAILABLE} else ""


def _trains(row: models.containerservice.AgentPool, title: str) -> bool:
    tags = row.tags or {}
    return is_ours(tags, title) and str(tags.get(TAG_KEY, "")).partition("/")[0] == GPU


def _scaled(azure: Azure, name: str, row: models.containerservice.AgentPool, nodes: int) -> str:
    """Begin to scale a pool; return why AKS cannot do so now, or an empty text."""
    if aks.condition_of(row)[0] is Condition.PENDING:
        return "AKS is still changing it"
    wanted = models.containerservice.AgentPool(row.as_dict())
    if wanted.properties is None:
        return "Azure does not report its properties"
    wanted.properties.count = nodes
    # A pool is written as a whole: if another process has changed it since it was read, Azure must refuse the
    # write.
    matches = MatchConditions.IfNotModified if row.e_tag else None
    put = azure.containerservice.agent_pools.begin_create_or_update
    try:
        operations.begin(put, name, name, row.name, wanted, etag=row.e_tag, match_condition=matches)
    except HttpResponseError as error:
        if errors.is_absent(error):
            return ""
        if error.status_code in _BUSY:
            return f"AKS is still changing it ({errors.code(error)})"
        return errors.explain(error).message  # the other pools are still scaled
    return ""
