"""The IAM grant of the account that ends a cluster: it may change that cluster, and nothing else.

The role is the guard's: both set the size of GPU pools to zero. The account is no pod's and no node's, so no
run can use the role.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.cost import FREE
from cloudrec.providers.gcp.api.gke import CLUSTER
from cloudrec.providers.gcp.identity import identity
from cloudrec.providers.gcp.identity.guard import GuardBindingDriver, GuardBindingProperties
from cloudrec.providers.gcp.identity.prepared import END

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Resource
    from cloudrec.providers.gcp.api.client import Gcp
    from cloudrec.providers.gcp.api.driver import GcpDriver
    from cloudrec.providers.gcp.layout import GcpLayout

BINDING = "end-binding"
KINDS: Mapping[str, AbstractSet[str]] = {BINDING: frozenset({CLUSTER, identity.ACCOUNT})}


def resources(layout: GcpLayout) -> list[Resource]:
    """Describe the grant; nothing for a cluster without an end."""
    if not layout.cluster.expires:
        return []
    binding = layout.resource(
        BINDING,
        needs=(layout.key(CLUSTER), layout.key(identity.ACCOUNT, END)),
        properties=GuardBindingProperties(
            member=f"serviceAccount:{layout.end_account}",
            role=layout.settings.guard_role or layout.guard_role,
        ),
        hourly_usd=FREE,
    )
    return [binding]


def drivers(gcp: Gcp) -> Mapping[str, GcpDriver]:
    """Return the driver by kind."""
    return {BINDING: EndBindingDriver(gcp)}


class EndBindingDriver(GuardBindingDriver):
    """Handles the grants of the accounts that end clusters."""

    kind = BINDING
    title = "cloudrec end"
