"""The parts of load balancers, as controllers inside a cluster make them."""

from __future__ import annotations

from dataclasses import replace

from google.cloud.compute_v1.types.compute import (
    BackendService,
    ForwardingRule,
    HealthCheck,
    NetworkEndpointGroup,
    TargetHttpProxy,
    TargetHttpsProxy,
    TargetPool,
    UrlMap,
)

from cloudrec_sandbox.gcp.services.compute import changes, collections
from cloudrec_sandbox.gcp.services.compute.collections import Collection

FORWARDING_RULES = Collection(
    name="forwardingRules",
    noun="forwardingRule",
    scope="region",
    message=ForwardingRule,
    quota="FORWARDING_RULES",
    refers=("network", "subnetwork", "target", "backendService"),
)
TARGET_POOLS = Collection(
    name="targetPools", noun="targetPool", scope="region", message=TargetPool, quota="TARGET_POOLS"
)
HEALTH_CHECKS = Collection(
    name="healthChecks", noun="healthCheck", scope="global", message=HealthCheck, quota="HEALTH_CHECKS"
)
GROUPS = Collection(
    name="networkEndpointGroups",
    noun="networkEndpointGroup",
    scope="zone",
    message=NetworkEndpointGroup,
    quota="NETWORK_ENDPOINT_GROUPS",
    refers=("network", "subnetwork"),
)
_OTHERS = (
    replace(FORWARDING_RULES, scope="global", front="globalForwardingRules"),
    replace(HEALTH_CHECKS, scope="region", front="regionHealthChecks"),
    replace(GROUPS, scope="global", front="globalNetworkEndpointGroups"),
)
_BOTH = (
    Collection(
        name="backendServices",
        noun="backendService",
        scope="global",
        message=BackendService,
        quota="BACKEND_SERVICES",
    ),
    Collection(
        name="urlMaps",
        noun="urlMap",
        scope="global",
        message=UrlMap,
        quota="URL_MAPS",
        refers=("defaultService",),
    ),
    Collection(
        name="targetHttpProxies",
        noun="targetHttpProxy",
        scope="global",
        message=TargetHttpProxy,
        quota="TARGET_HTTP_PROXIES",
        refers=("urlMap",),
    ),
    Collection(
        name="targetHttpsProxies",
        noun="targetHttpsProxy",
        scope="global",
        message=TargetHttpsProxy,
        quota="TARGET_HTTPS_PROXIES",
        refers=("urlMap",),
    ),
)
_REGIONAL = tuple(
    replace(each, scope="region", front=f"region{each.name[0].upper()}{each.name[1:]}") for each in _BOTH
)

for _collection in (FORWARDING_RULES, TARGET_POOLS, HEALTH_CHECKS, GROUPS, *_OTHERS, *_BOTH, *_REGIONAL):
    collections.reads(_collection)
    changes.inserts(_collection)
    changes.deletes(_collection)
