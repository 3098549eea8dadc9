"""The schemas of PodMonitor and PodMonitoring.

PodMonitor is by the types that prometheus-operator publishes: pkg/apis/monitoring/v1.

Required fields, patterns, limits and enumerations are those of the types' markers in podmonitor_types.go and
types.go, as read on 2026-11-26. Fields for authorization, TLS and relabeling are left out, so that an object
with one is refused. AKS's agent has the same kind in the group azmonitoring.coreos.com (azure-monitor-docs,
prometheus-metrics-scrape-crd.md).

PodMonitoring is by GoogleCloudPlatform/prometheus-engine, charts/operator/crds, podmonitorings, version v1,
as read on 2026-11-26, without authorization, TLS, relabeling and the rules in CEL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_DURATION = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"

_text = {"type": "string"}
_texts = {"type": "array", "items": _text}
_limit = {"type": "integer", "format": "int64"}
_duration = {"type": "string", "pattern": _DURATION}
_expression = {
    "type": "object",
    "required": ["key", "operator"],
    "properties": {"key": _text, "operator": _text, "values": {**_texts, "x-kubernetes-list-type": "atomic"}},
}
_selector = {
    "type": "object",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": _text},
        "matchExpressions": {"type": "array", "items": _expression, "x-kubernetes-list-type": "atomic"},
    },
    "x-kubernetes-map-type": "atomic",
}
_endpoint = {
    "type": "object",
    "properties": {
        "port": _text,
        "portNumber": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
        "path": _text,
        "scheme": {"type": "string", "enum": ["http", "https", "HTTP", "HTTPS"]},
        "interval": _duration,
        "scrapeTimeout": _duration,
        "honorLabels": {"type": "boolean"},
        "honorTimestamps": {"type": "boolean"},
        "filterRunning": {"type": "boolean"},
    },
}
_spec = {
    "type": "object",
    "required": ["podMetricsEndpoints", "selector"],
    "properties": {
        "jobLabel": _text,
        "labelLimit": _limit,
        "labelNameLengthLimit": _limit,
        "labelValueLengthLimit": _limit,
        "sampleLimit": _limit,
        "targetLimit": _limit,
        "namespaceSelector": {
            "type": "object",
            "properties": {"any": {"type": "boolean"}, "matchNames": _texts},
        },
        "podMetricsEndpoints": {"type": "array", "items": _endpoint},
        "podTargetLabels": _texts,
        "selector": _selector,
    },
}

_scraped = {
    "type": "object",
    "required": ["interval", "port"],
    "properties": {
        "port": {"x-kubernetes-int-or-string": True},
        "path": _text,
        "scheme": {"type": "string", "enum": ["http", "https"]},
        "interval": _duration,
        "timeout": _duration,
    },
}
_monitoring = {
    "type": "object",
    "required": ["endpoints", "selector"],
    "properties": {
        "endpoints": {"type": "array", "minItems": 1, "maxItems": 10, "items": _scraped},
        "filterRunning": {"type": "boolean"},
        "selector": _selector,
    },
}

MONITORS: Mapping[str, dict[str, Any]] = {
    "PodMonitor": {"type": "object", "required": ["spec"], "properties": {"spec": _spec}},
    "PodMonitoring": {"type": "object", "required": ["spec"], "properties": {"spec": _monitoring}},
}
