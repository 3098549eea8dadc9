"""Azure Monitor workspaces, each with a resource group that Azure makes and deletes with it.

Sources: azure-rest-api-specs, Microsoft.Monitor 2023-04-03 (monitoringAccounts_API.json): a PUT is done when
it returns, a DELETE is an operation, the name's pattern. azure-docs, azure-monitor-workspace-manage.md: the
group MA_NAME_LOCATION_managed in lower case, with a data collection endpoint and rule of the workspace's
name; it is deleted with the workspace, and there is no soft delete.

Duration: monitor-workspace-delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm import operations
from cloudrec_sandbox.azure.arm.errors import malformed
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.paths import GROUP
from cloudrec_sandbox.azure.arm.registry import durations
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import Resource, store
from cloudrec_sandbox.azure.services.monitor import collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.core.world import World

_READ_ONLY = ("accountId", "metrics", "defaultIngestionSettings", "publicNetworkAccess")

durations({"monitor-workspace-delete": 60})


@register
class MonitorWorkspaces(Kind):
    """Workspaces."""

    type = collection.WORKSPACE
    apis: ClassVar[Sequence[str]] = ("2023-04-03", "2025-10-03")
    name_rule = r"(?!-)[a-zA-Z0-9-]+[^-]"
    delete_time = "monitor-workspace-delete"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Refuse properties that the model does not have."""
        unknown = sorted(set(body.get("properties") or {}) - {*_READ_ONLY, "provisioningState"})
        if unknown:
            raise malformed("InvalidRequestContent", [f"properties.{name}: unknown" for name in unknown])

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Make the group of a new workspace, with what takes its data by default."""
        if old is not None:
            resource.properties.update({name: old["properties"][name] for name in _READ_ONLY})
            return
        identity = str(uuid5(NAMESPACE_URL, f"{resource.id}@{resource.made_at}"))
        group = _group_id(resource)
        root = f"{group}/providers"
        endpoint, rule = (f"{root}/{kind}/{resource.name}" for kind in (collection.ENDPOINT, collection.RULE))
        host = f"https://{resource.name}-{identity[:4]}.{resource.location}.prometheus.monitor.azure.com"
        resource.properties.update(
            {
                "accountId": identity,
                "metrics": {"prometheusQueryEndpoint": host, "internalId": f"mac_{identity}"},
                "defaultIngestionSettings": {
                    "dataCollectionEndpointResourceId": endpoint,
                    "dataCollectionRuleResourceId": rule,
                },
                "publicNetworkAccess": "Enabled",
            }
        )
        _add(call.world, resource, group, GROUP)
        _add(call.world, resource, endpoint, collection.ENDPOINT)
        _add(call.world, resource, rule, collection.RULE, dataCollectionEndpointId=endpoint)

    def removed(self, world: World, resource: Resource) -> None:
        """Remove its group."""
        group = store(world).find(_group_id(resource))
        if group is not None:
            operations.remove(world, group)


def _group_id(workspace: Resource) -> str:
    name = f"MA_{workspace.name}_{workspace.location}_managed".lower().replace("ma_", "MA_", 1)
    return f"/subscriptions/{workspace.path.subscription}/resourceGroups/{name}"


def _add(world: World, workspace: Resource, id_: str, kind: str, **properties: Any) -> None:  # noqa: ANN401 - JSON
    document = {
        "id": id_,
        "name": id_.rpartition("/")[2],
        "type": kind,
        "location": workspace.location,
        **({"managedBy": workspace.id} if kind == GROUP else {}),
        "properties": {"provisioningState": "Succeeded", **properties},
    }
    now = world.now()
    store(world).add(Resource(id=id_, type=kind, document=document, made_at=now, changed_at=now))
