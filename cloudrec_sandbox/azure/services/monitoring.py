"""Types of other services that users have beside a cluster: of monitoring, and of schedules.

They are created and removed at once, and do nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from cloudrec_sandbox.azure.arm.errors import ArmError
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource

WORKSPACE = "Microsoft.OperationalInsights/workspaces"
COMPONENT = "Microsoft.Insights/components"
SCHEDULE = "Microsoft.DevTestLab/schedules"
_SHUTDOWN = "ComputeVmShutdownTask"


@register
class Workspaces(Kind):
    """Log Analytics workspaces."""

    type = WORKSPACE
    apis: ClassVar[Sequence[str]] = ("2025-02-01", "2023-09-01", "2022-10-01")
    name_rule = r"[A-Za-z0-9](?:[A-Za-z0-9-]{2,61}[A-Za-z0-9])"


@register
class Components(Kind):
    """Components of Application Insights."""

    type = COMPONENT
    apis: ClassVar[Sequence[str]] = ("2020-02-02", "2015-05-01")

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse a component without its kind or its application's type."""
        if not body.get("kind") or not (body.get("properties") or {}).get("Application_Type"):
            raise ArmError("InvalidRequestContent", "kind and properties.Application_Type are required.")


@register
class Schedules(Kind):
    """Schedules that shut a machine down each day: `shutdown-computevm-MACHINE`."""

    type = SCHEDULE
    apis: ClassVar[Sequence[str]] = ("2018-09-15", "2016-05-15")

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the task, the name, and that the machine exists."""
        properties = body.get("properties") or {}
        target = str(properties.get("targetResourceId") or "")
        wanted = f"shutdown-computevm-{target.rpartition('/')[2]}"
        if properties.get("taskType") != _SHUTDOWN or call.path.name.lower() != wanted.lower():
            raise ArmError(
                "InvalidScheduleId",
                f"A schedule outside a lab has taskType {_SHUTDOWN} and the name shutdown-computevm-MACHINE.",
            )
        if store(call.world).find(target) is None:
            raise ArmError("InvalidTargetResource", f"The machine {target} does not exist.")
