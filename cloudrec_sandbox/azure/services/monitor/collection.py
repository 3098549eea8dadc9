"""Data collection: endpoints, rules, and the associations of rules with what they are for.

Sources: azure-rest-api-specs, Microsoft.Insights 2022-06-01 and the models of azure-mgmt-monitor 7.0
(DataCollectionRule, PrometheusForwarderDataSource, MonitoringAccountDestination, DataFlow): members, values,
calls that are done when they return. data-collection-endpoint-overview: an endpoint is in the region of what
takes its data. "Existing associations prevent data collection rule from being deleted"
(hashicorp/terraform-provider-azurerm#24785), unless `deleteAssociations` is true, which the stand-in does not
have. Azure/arm-template-whatif#282: the name of an association with an endpoint.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import NAMESPACE_URL, uuid5

from cloudrec_sandbox.azure.arm.errors import ArmError, malformed, not_found
from cloudrec_sandbox.azure.arm.kinds import Kind
from cloudrec_sandbox.azure.arm.registry import resource as register
from cloudrec_sandbox.azure.arm.store import region_of, store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec_sandbox.azure.arm.call import Call
    from cloudrec_sandbox.azure.arm.store import Resource
    from cloudrec_sandbox.core.world import World

WORKSPACE = "Microsoft.Monitor/accounts"
ENDPOINT, RULE = "Microsoft.Insights/dataCollectionEndpoints", "Microsoft.Insights/dataCollectionRules"
ASSOCIATION = "Microsoft.Insights/dataCollectionRuleAssociations"
_APIS = ("2022-06-01", "2023-03-11", "2024-03-11")
_KINDS = ("Linux", "Windows")
_NETWORK = ("Enabled", "Disabled", "SecuredByPerimeter")
_STREAM = "Microsoft-PrometheusMetrics"
_ONLY_LABEL = "microsoft_metrics_include_label"
_FOR_ENDPOINT = "configurationAccessEndpoint"
_OF_RULE = (
    "dataCollectionEndpointId",
    "dataFlows",
    "dataSources",
    "description",
    "destinations",
    "provisioningState",
    "streamDeclarations",
)


@register
class Endpoints(Kind):
    """Data collection endpoints."""

    type = ENDPOINT
    apis: ClassVar[Sequence[str]] = _APIS
    # The onboarding template cuts names at 44 characters (prometheus-collector, AddonBicepTemplate).
    name_rule = r"[a-zA-Z0-9](?:[\w.-]{1,42}[a-zA-Z0-9])"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check the kind and the access by network."""
        _check_kind(body)
        access = ((body.get("properties") or {}).get("networkAcls") or {}).get("publicNetworkAccess")
        if access not in (None, *_NETWORK):
            raise malformed("InvalidPayload", [f"networkAcls.publicNetworkAccess: {access!r}"])

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Give it its addresses."""
        identity = _identity(resource, "dce")
        host = f"{resource.name}-{identity[-4:]}.{resource.location}-1"
        resource.properties.setdefault("networkAcls", {"publicNetworkAccess": "Enabled"})
        resource.properties.update(
            {
                "immutableId": identity,
                "configurationAccess": {"endpoint": f"https://{host}.handler.control.monitor.azure.com"},
                "logsIngestion": {"endpoint": f"https://{host}.ingest.monitor.azure.com"},
                "metricsIngestion": {"endpoint": f"https://{host}.metrics.ingest.monitor.azure.com"},
            }
        )


@register
class Rules(Kind):
    """Data collection rules; the stand-in has those for Prometheus."""

    type = RULE
    apis: ClassVar[Sequence[str]] = _APIS
    name_rule = r"[\w.-]{1,64}"

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check members, streams, destinations and what the rule refers to."""
        _check_kind(body)
        wish = body.get("properties") or {}
        if unknown := sorted(set(wish) - {*_OF_RULE, "immutableId"}):
            raise malformed("InvalidPayload", [f"properties.{name}: unknown" for name in unknown])
        sources = (wish.get("dataSources") or {}).get("prometheusForwarder") or []
        accounts = (wish.get("destinations") or {}).get("monitoringAccounts") or []
        if faults := [*_source_faults(sources), *_flow_faults(wish, sources, accounts)]:
            raise malformed("InvalidPayload", faults)
        region = region_of(body)
        endpoint = str(wish.get("dataCollectionEndpointId") or "")
        # Prometheus' metrics still need an endpoint (data-collection-endpoint-overview).
        if not endpoint:
            raise malformed("InvalidPayload", ["dataCollectionEndpointId: prometheusForwarder needs one"])
        _resolve(call.world, endpoint, ENDPOINT, region)
        for account in accounts:
            _resolve(call.world, str(account.get("accountResourceId") or ""), WORKSPACE, region)

    def build(self, call: Call, body: dict[str, Any], resource: Resource, old: dict[str, Any] | None) -> None:
        """Give it its id, and name the accounts by theirs."""
        resource.properties["immutableId"] = _identity(resource, "dcr")
        for account in resource.properties["destinations"]["monitoringAccounts"]:
            found = store(call.world).find(account["accountResourceId"])
            account["accountId"] = found.properties["accountId"] if found else ""

    def check_delete(self, world: World, resource: Resource) -> None:
        """Refuse to delete a rule that is associated."""
        users = [
            each.id
            for each in store(world).of_type(ASSOCIATION)
            if str(each.properties.get("dataCollectionRuleId") or "").lower() == resource.key
        ]
        if users:
            raise ArmError(
                "AssociationsExist",
                f"The data collection rule '{resource.name}' has {len(users)} associations, such as "
                f"'{users[0]}': delete them first.",
                status=HTTPStatus.CONFLICT,
            )


@register
class Associations(Kind):
    """Associations: each is an extension of the resource that it is for, and goes with it."""

    type = ASSOCIATION
    apis: ClassVar[Sequence[str]] = _APIS
    name_rule = r"[\w.-]{1,260}"
    is_located = False
    is_tracked = False
    takes_tags = False

    def check(self, call: Call, body: dict[str, Any], old: Resource | None) -> None:
        """Check what it is for, its name, and what it refers to."""
        world, scope = call.world, call.path.scope
        if store(world).find(scope) is None:
            raise not_found(scope, "the resource that is associated", call.path.group)
        wish = body.get("properties") or {}
        rule, endpoint = (
            str(wish.get(name) or "") for name in ("dataCollectionRuleId", "dataCollectionEndpointId")
        )
        if not rule and not endpoint:
            raise malformed("InvalidPayload", ["dataCollectionRuleId or dataCollectionEndpointId: missing"])
        if endpoint and (rule or call.path.name.lower() != _FOR_ENDPOINT.lower()):
            raise ArmError(
                "InvalidEndpointAssociationName",
                f"An association of a data collection endpoint must be named '{_FOR_ENDPOINT}'.",
            )
        _resolve(world, rule or endpoint, RULE if rule else ENDPOINT, "")


def _check_kind(body: dict[str, Any]) -> None:
    if body.get("kind") not in (None, *_KINDS):
        raise malformed("InvalidPayload", [f"kind: {body.get('kind')!r} is none of {', '.join(_KINDS)}"])


def _source_faults(sources: Sequence[dict[str, Any]]) -> list[str]:
    faults = [] if sources else ["dataSources.prometheusForwarder: the stand-in has no other rules"]
    names = [source.get("name") for source in sources]
    if len(set(names)) != len(names) or not all(names):
        faults.append("dataSources.prometheusForwarder: names are missing, or are not unique")
    for source in sources:
        if source.get("streams") != [_STREAM]:
            faults.append(f"dataSources.prometheusForwarder.streams: it must be {_STREAM}")
        if others := set(source.get("labelIncludeFilter") or {}) - {_ONLY_LABEL}:
            faults.append(f"dataSources.prometheusForwarder.labelIncludeFilter: {sorted(others)}")
    return faults


def _flow_faults(
    wish: dict[str, Any], sources: Sequence[dict[str, Any]], accounts: Sequence[dict[str, Any]]
) -> list[str]:
    """Return what is wrong with the flows: each names streams of sources, and destinations that there are."""
    flows = wish.get("dataFlows") or []
    streams = {stream for source in sources for stream in source.get("streams") or ()}
    names = {account.get("name") for account in accounts}
    faults = [] if flows else ["dataFlows: missing"]
    for flow in flows:
        faults += [f"dataFlows.streams: {each}" for each in set(flow.get("streams") or ()) - streams]
        asked = set(flow.get("destinations") or ())
        faults += [f"dataFlows.destinations: there is no {each}" for each in asked - names]
        faults += [] if asked else ["dataFlows.destinations: missing"]
    return faults


def _resolve(world: World, id_: str, kind: str, region: str) -> None:
    """Refuse a reference to a resource that does not exist, has another type, or is in another region."""
    found = store(world).find(id_)
    if found is None or found.type.lower() != kind.lower() or found.deleting:
        raise ArmError("InvalidPayload", f"The {kind} '{id_}' was not found.")
    if region and found.location != region:
        raise ArmError(
            "InvalidPayload", f"The {kind} '{id_}' is in {found.location}: it must be in {region}, too."
        )


def _identity(resource: Resource, prefix: str) -> str:
    return f"{prefix}-{uuid5(NAMESPACE_URL, f'{resource.id}@{resource.made_at}').hex}"
