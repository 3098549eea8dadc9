"""What Azure Monitor's managed service for Prometheus needs beside the agent that AKS runs.

The parts are those of Microsoft's template for onboarding (Azure/prometheus-collector,
AddonBicepTemplate/FullAzureMonitorMetricsProfile.bicep): a workspace keeps the metrics, an endpoint takes
them, a rule names both, and its association with the cluster gives the agent its configuration. The template
assigns a role only for Grafana. A workspace comes with a resource group, which Azure deletes with it
(azure-docs, azure-monitor-workspace-manage.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from cloudrec.engine.cost import BY_USE, FREE
from cloudrec.engine.graph import TAG_CLUSTER, Observed, P_contra, Properties
from cloudrec.providers.azure import groups
from cloudrec.providers.azure.api import ids, models
from cloudrec.providers.azure.api.aks import CLUSTER_TYPE
from cloudrec.providers.azure.api.rows import group_name, inherited, place
from cloudrec.providers.azure.api.tracked import (
    Calls,
    GroupDriver,
    LocatedProperties,
    TrackedCalls,
    TrackedDriver,
    group_names,
)
from cloudrec.providers.azure.api.untyped import Provisioned, UntypedCalls, properties_of
from cloudrec.providers.azure.cluster import cluster as control_plane
from cloudrec.providers.base.driver import is_ours, needed
from cloudrec.providers.base.layout import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from cloudrec.engine.graph import Condition, Resource
    from cloudrec.providers.azure.api.client import Azure
    from cloudrec.providers.azure.api.driver import AzureDriver
    from cloudrec.providers.azure.layout import AzureLayout

WORKSPACE, ENDPOINT = "metrics-workspace", "metrics-endpoint"
RULE, ASSOCIATION = "metrics-rule", "metrics-association"
_SHARED = frozenset({groups.GROUP, groups.REGISTRATION})
KINDS: Mapping[str, AbstractSet[str]] = {
    WORKSPACE: _SHARED,
    ENDPOINT: _SHARED,
    RULE: _SHARED | {WORKSPACE, ENDPOINT},
    ASSOCIATION: frozenset({RULE, control_plane.CLUSTER}),
}

WORKSPACE_TYPE = "Microsoft.Monitor/accounts"
_INSIGHTS = "Microsoft.Insights"
_RULE_TYPE, _ENDPOINT_TYPE = f"{_INSIGHTS}/dataCollectionRules", f"{_INSIGHTS}/dataCollectionEndpoints"
_ASSOCIATION_TYPE = f"{_INSIGHTS}/dataCollectionRuleAssociations"
_WORKSPACE_VERSION, _VERSION = "2023-04-03", "2022-06-01"
_LONGEST = 44  # characters of a name: the limit of an endpoint's
_STREAM = "Microsoft-PrometheusMetrics"
_DESTINATION = "MonitoringAccount1"


@dataclass(frozen=True, kw_only=True)
class MetricsRuleProperties(LocatedProperties):
    """The requested properties of a data collection rule.

    Attributes:
        workspace: id of the workspace that keeps the metrics, in lower case.
        endpoint: id of the endpoint that takes them, in lower case.
    """

    workspace: str
    endpoint: str


@dataclass(frozen=True, kw_only=True)
class MetricsAssociationProperties(Properties):
    """The requested properties of the association of a cluster with a rule.

    Attributes:
        rule: id of the data collection rule, in lower case.
    """

    rule: str


def resources(layout: AzureLayout) -> list[Resource]:
    """Return the workspace, the endpoint, the rule and its association; empty if no service is asked for."""
    if not layout.has_managed_metrics:
        return []
    there = LocatedProperties(location=layout.region)
    name = _name(layout.name)
    workspace, endpoint, rule = (
        ids.resource(layout.subscription, layout.group, of_type, name).lower()
        for of_type in (WORKSPACE_TYPE, _ENDPOINT_TYPE, _RULE_TYPE)
    )
    insights = groups.needs(layout, groups.INSIGHTS)
    return [
        layout.resource(
            WORKSPACE, needs=groups.needs(layout, groups.MONITOR), properties=there, hourly_usd=BY_USE
        ),
        layout.resource(ENDPOINT, needs=insights, properties=there, hourly_usd=FREE),
        layout.resource(
            RULE,
            needs=(*insights, layout.key(WORKSPACE), layout.key(ENDPOINT)),
            properties=MetricsRuleProperties(location=layout.region, workspace=workspace, endpoint=endpoint),
            hourly_usd=FREE,
        ),
        layout.resource(
            ASSOCIATION,
            needs=(layout.key(RULE), layout.key(control_plane.CLUSTER)),
            properties=MetricsAssociationProperties(rule=rule),
            hourly_usd=FREE,
        ),
    ]


def drivers(azure: Azure) -> Mapping[str, AzureDriver]:
    """Return the drivers, by kind."""
    made = (MetricsWorkspaceDriver, MetricsEndpointDriver, MetricsRuleDriver, MetricsAssociationDriver)
    return {driver.kind: driver(azure) for driver in made}


def _name(name: str) -> str:
    return shortened(name, _LONGEST)


class _MonitorDriver(TrackedDriver["models.resources.GenericResource", P_contra], Generic[P_contra]):
    """Handles one kind of Azure Monitor's resources, by the API for resources of any type.

    A search reads Azure's index of resources. So a role without rights on these types removes a cluster that
    has none of them.
    """

    version: ClassVar[str] = _VERSION

    @property
    def calls(self) -> TrackedCalls[models.resources.GenericResource]:
        """The client's methods for this kind."""
        return UntypedCalls(azure=self.azure, of_type=self.of_type, version=self.version).tracked

    def named(self, resource: Resource[P_contra]) -> str:
        """Return the resource's name in Azure."""
        return _name(super().named(resource))

    def state(self, row: models.resources.GenericResource) -> tuple[Condition, str]:
        """Return the condition; a list shows none, and these resources are created within the call."""
        return super().state(Provisioned(properties_of(row).get("provisioningState")))  # type: ignore[arg-type]


class MetricsWorkspaceDriver(_MonitorDriver[LocatedProperties]):
    """Handles Azure Monitor workspaces."""

    kind, charge = WORKSPACE, BY_USE
    of_type, version = WORKSPACE_TYPE, _WORKSPACE_VERSION
    deadline_s = 1800.0  # its deletion also deletes its resource group

    def body(
        self, resource: Resource[LocatedProperties], identities: Mapping[str, str]
    ) -> models.resources.GenericResource:
        """Return the SDK's model of a workspace."""
        del identities
        return models.resources.GenericResource(
            location=resource.properties.location, tags=dict(resource.tags), properties={}
        )


class MetricsEndpointDriver(_MonitorDriver[LocatedProperties]):
    """Handles data collection endpoints."""

    kind, charge = ENDPOINT, FREE
    of_type = _ENDPOINT_TYPE

    def body(
        self, resource: Resource[LocatedProperties], identities: Mapping[str, str]
    ) -> models.resources.GenericResource:
        """Return the SDK's model of an endpoint."""
        del identities
        return models.resources.GenericResource(
            location=resource.properties.location, tags=dict(resource.tags), kind="Linux", properties={}
        )


class MetricsRuleDriver(_MonitorDriver[MetricsRuleProperties]):
    """Handles data collection rules."""

    kind, charge = RULE, FREE
    of_type = _RULE_TYPE
    repairs = True
    changeable = frozenset({"workspace"})

    def body(
        self, resource: Resource[MetricsRuleProperties], identities: Mapping[str, str]
    ) -> models.resources.GenericResource:
        """Return the SDK's model of a rule that sends all Prometheus metrics to the workspace."""
        wanted = resource.properties
        return models.resources.GenericResource(
            location=wanted.location,
            tags=dict(resource.tags),
            kind="Linux",
            properties={
                "dataCollectionEndpointId": needed(resource, identities, ENDPOINT),
                "dataSources": {
                    "prometheusForwarder": [
                        {"name": "PrometheusDataSource", "streams": [_STREAM], "labelIncludeFilter": {}}
                    ]
                },
                "destinations": {
                    "monitoringAccounts": [
                        {
                            "name": _DESTINATION,
                            "accountResourceId": needed(resource, identities, WORKSPACE),
                        }
                    ]
                },
                "dataFlows": [{"streams": [_STREAM], "destinations": [_DESTINATION]}],
            },
        )

    def complete(
        self, resource: Resource[MetricsRuleProperties], identity: str, *, identities: Mapping[str, str]
    ) -> None:
        """Put the rule as it is requested."""
        there = self.properties(self.row(identity))
        if there.get("workspace") != resource.properties.workspace:
            self.put(resource, identities)

    def properties(self, row: models.resources.GenericResource) -> Mapping[str, Any]:
        """Return the ids that the rule names; nothing of a row of a list."""
        found = properties_of(row)
        if "destinations" not in found:
            return {}
        accounts = (found["destinations"] or {}).get("monitoringAccounts") or []
        return {
            "workspace": " ".join(str(each.get("accountResourceId") or "").lower() for each in accounts),
            "endpoint": str(found.get("dataCollectionEndpointId") or "").lower(),
        }


class MetricsAssociationDriver(GroupDriver["models.resources.GenericResource", MetricsAssociationProperties]):
    """Handles the associations of clusters with rules. They have no tags: those of the rule count."""

    kind = ASSOCIATION
    of_type = _ASSOCIATION_TYPE
    changeable = frozenset({"rule"})

    @property
    def calls(self) -> Calls[models.resources.GenericResource]:
        """The client's methods for this kind."""
        return Calls(get=self._get, put=self._begin_put, delete=self._begin_delete)

    def named(self, resource: Resource[MetricsAssociationProperties]) -> str:
        """Return the association's name in Azure."""
        return _name(super().named(resource))

    def state(self, row: models.resources.GenericResource) -> tuple[Condition, str]:
        """Return the condition."""
        return super().state(Provisioned(properties_of(row).get("provisioningState")))  # type: ignore[arg-type]

    def search(self, cluster: str | None) -> Sequence[Observed]:
        """Return the associations of the clusters whose groups have a rule; a group without one has none."""
        rules = UntypedCalls(azure=self.azure, of_type=_RULE_TYPE, version=_VERSION)
        found = [
            self._observed(group, row)
            for group in group_names(self.azure, cluster)
            for row in self.azure.rows(rules.listed, group)
            if is_ours(row.tags or {}, cluster)
        ]
        return [seen for seen in found if seen is not None]

    def fetch(self, resource: Resource[MetricsAssociationProperties]) -> Observed | None:
        """Return the association of the cluster; None if it, its cluster or its rule does not exist."""
        group = group_name(resource.tags[TAG_CLUSTER])
        rules = UntypedCalls(azure=self.azure, of_type=_RULE_TYPE, version=_VERSION)
        row = self.azure.get(rules.read, group, self.named(resource))
        return None if row is None else self._observed(group, row)

    def body(
        self, resource: Resource[MetricsAssociationProperties], identities: Mapping[str, str]
    ) -> models.resources.GenericResource:
        """Return the SDK's model of an association."""
        return models.resources.GenericResource(
            properties={"dataCollectionRuleId": needed(resource, identities, RULE)}
        )

    def put(self, resource: Resource[MetricsAssociationProperties], identities: Mapping[str, str]) -> str:
        """Create the association, or change it into the requested one; return its identity."""
        group, name = group_name(resource.tags[TAG_CLUSTER]), self.named(resource)
        return self._put(self._id(group, name), group, name, self.body(resource, identities))

    def complete(
        self,
        resource: Resource[MetricsAssociationProperties],
        identity: str,
        *,
        identities: Mapping[str, str],
    ) -> None:
        """Put the association as it is requested."""
        if _rule_of(self.row(identity)) != resource.properties.rule:
            self.put(resource, identities)

    def _observed(self, group: str, rule: models.resources.GenericResource) -> Observed | None:
        """Return the association of the cluster in a group with cloudrec's rule, with that rule's tags."""
        name, tags = (rule.name or "").lower(), rule.tags or {}
        row = self.azure.get(self._get, group, name)
        title = tags.get(TAG_CLUSTER)
        if row is None or title is None:
            return None
        condition, reason = self.state(row)
        return Observed(
            kind=ASSOCIATION,
            name=title,
            identity=self._id(group, name),
            condition=condition,
            properties={"rule": _rule_of(row)},
            tags=inherited(tags, f"{ASSOCIATION}/{title}"),
            hourly_usd=FREE,
            reason=reason,
            location=place(rule.location),
        )

    def _id(self, group: str, name: str) -> str:
        """Return the id of an association: below that of the cluster, which has the name of its group."""
        of = ids.resource(self.azure.subscription, group, CLUSTER_TYPE, group)
        return f"{of}/providers/{_ASSOCIATION_TYPE}/{name}"

    def _get(self, group: str, name: str) -> models.resources.GenericResource:
        return self.azure.resources.resources.get_by_id(self._id(group, name), api_version=_VERSION)

    def _begin_put(
        self,
        group: str,
        name: str,
        row: models.resources.GenericResource,
        **more: Any,  # noqa: ANN401 - the SDK's own
    ) -> object:
        of = self.azure.resources.resources
        return of.begin_create_or_update_by_id(self._id(group, name), row, api_version=_VERSION, **more)

    def _begin_delete(self, group: str, name: str, **more: Any) -> object:  # noqa: ANN401 - the SDK's own
        of = self.azure.resources.resources
        return of.begin_delete_by_id(self._id(group, name), api_version=_VERSION, **more)


def _rule_of(row: models.resources.GenericResource) -> str:
    return str(properties_of(row).get("dataCollectionRuleId") or "").lower()
