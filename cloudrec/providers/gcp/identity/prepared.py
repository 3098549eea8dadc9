"""What an administrator has prepared in a project for all its clusters (infra/gcp/README.md).

A deployer who may act as every account of the project, and grant roles on it, could get the permissions of
any of them. With the account and the role that this module finds, a deployer needs neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.api_core import exceptions as api

from cloudrec.providers.gcp.layout import account_address, account_id

if TYPE_CHECKING:
    from cloudrec.providers.gcp.api.client import Gcp

NODES = "nodes"  # the suffix of the account of a cluster's nodes
SHARED = "cloudrec-nodes"
END = "end"  # the suffix of the account that ends a cluster
SHARED_END = "cloudrec-end"
GUARD = "cloudrecGuard"
STARTER = "cloudrecEnd"
_GUARD_DEFAULT = "roles/container.clusterAdmin"
_STARTER_DEFAULT = "roles/workflows.invoker"
_START = "workflows.executions.create"
_STARTERS = frozenset({_STARTER_DEFAULT, "roles/workflows.admin", "roles/workflows.editor", "roles/owner"})


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What the project has.

    Attributes:
        node_account: e-mail address of the nodes' service account; empty if each cluster gets a separate one.
        guard_role: the role that a guard gets for its cluster.
    """

    node_account: str = ""
    guard_role: str = _GUARD_DEFAULT


def find(gcp: Gcp, cluster: str) -> Prepared:
    """Return what the project has for a cluster, as this process first found it.

    A cluster that has a separate account keeps it.
    """
    key = f"prepared {cluster}"
    if key not in gcp.cache:
        gcp.cache[key] = _search(gcp, cluster)
    found: Prepared = gcp.cache[key]
    return found


def end_account(gcp: Gcp, cluster: str) -> str:
    """Return the address of the account that an administrator made to end clusters; empty if there is none.

    A cluster that has a separate account keeps it.
    """
    key = f"prepared end {cluster}"
    if key not in gcp.cache:
        gcp.cache[key] = _shared(gcp, cluster, END, SHARED_END)
    found: str = gcp.cache[key]
    return found


def starter_role(gcp: Gcp) -> str:
    """Return the role that lets an account start workflows: the administrator's, or Google's."""
    key = "prepared starter"
    if key not in gcp.cache:
        role = f"projects/{gcp.project}/roles/{STARTER}"
        gcp.cache[key] = role if _exists(gcp, role) else _STARTER_DEFAULT
    found: str = gcp.cache[key]
    return found


def starts_workflows(gcp: Gcp, role: str) -> bool:
    """Return whether a role has the permission to start workflows."""
    if not role.startswith("projects/"):
        return role in _STARTERS
    row = gcp.or_none(lambda: gcp.repeat(lambda: gcp.send("iam", "GET", f"/v1/{role}"))) or {}
    return not row.get("deleted", False) and _START in row.get("includedPermissions", ())


def _search(gcp: Gcp, cluster: str) -> Prepared:
    role = f"projects/{gcp.project}/roles/{GUARD}"
    return Prepared(
        node_account=_shared(gcp, cluster, NODES, SHARED),
        guard_role=role if _exists(gcp, role) else _GUARD_DEFAULT,
    )


def _shared(gcp: Gcp, cluster: str, suffix: str, name: str) -> str:
    """Return the administrator's account; empty if there is none, or the cluster has its own."""
    own = account_address(account_id(cluster, gcp.region, suffix), gcp.project)
    shared = account_address(name, gcp.project)
    accounts = f"projects/{gcp.project}/serviceAccounts"
    is_shared = not _exists(gcp, f"{accounts}/{own}") and _exists(gcp, f"{accounts}/{shared}")
    return shared if is_shared else ""


def _exists(gcp: Gcp, path: str) -> bool:
    """Return whether IAM has it and shows it to the caller; a deleted role is still listed for days."""
    try:
        row = gcp.or_none(lambda: gcp.repeat(lambda: gcp.send("iam", "GET", f"/v1/{path}")))
    except api.Forbidden:
        return False
    return row is not None and not row.get("deleted", False)
