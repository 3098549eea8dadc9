"""The schemas of Kueue's kinds, by the types that it publishes: kubernetes-sigs/kueue, apis/kueue/v1beta2.

Limits, patterns, enumerations and rules are those of the types' markers, in the versions of
clusterqueue_types.go, localqueue_types.go, resourceflavor_types.go and topology_types.go that were read on
2026-11-25. Fields of Kueue's other features (fair sharing, wall time, concurrent admission) are left out, so
that an object with one is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_DOMAIN = _NAME.strip("^$")
_LABEL = rf"^({_DOMAIN}/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
_NUMBER = r"(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
_EFFECTS = "['NoSchedule', 'PreferNoSchedule', 'NoExecute']"
_HOST = "kubernetes.io/hostname"

_reference = {"type": "string", "maxLength": 253, "pattern": _NAME}
_text = {"type": "string"}
_stop = {"type": "string", "enum": ["None", "Hold", "HoldAndDrain"], "default": "None"}
_quantity = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": rf"^{_NUMBER}(([KMGTPE]i)|[numkMGTPE]|([eE]{_NUMBER}))?$",
}


def _object(fields: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - of a schema
    return {"type": "object", "properties": fields, **({"required": [*required]} if required else {}), **more}


def _list(
    items: dict[str, Any],
    most: int,
    *,
    key: str = "",
    least: int = 0,
    rules: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    kind: dict[str, Any] = {"x-kubernetes-list-type": "map" if key else "atomic"}
    if key:
        kind["x-kubernetes-list-map-keys"] = [key]
    if rules:
        kind["x-kubernetes-validations"] = [*rules]
    bounds = {"maxItems": most, **({"minItems": least} if least else {})}
    return {"type": "array", "items": items, **bounds, **kind}


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


_taint = _object({"key": _text, "value": _text, "effect": _text, "timeAdded": _text}, "key", "effect")
_toleration = _object(
    {
        "key": _text,
        "operator": _text,
        "value": _text,
        "effect": _text,
        "tolerationSeconds": {"type": "integer", "format": "int64"},
    }
)
_flavor = _object(
    {
        "nodeLabels": {
            "type": "object",
            "additionalProperties": _text,
            "maxProperties": 8,
            "x-kubernetes-map-type": "atomic",
        },
        "nodeTaints": _list(_taint, 8),
        "tolerations": _list(
            _toleration,
            8,
            rules=[
                _rule(
                    "self.all(x, has(x.key) || (has(x.operator) && x.operator == 'Exists'))",
                    "without a key, the operator is Exists",
                ),
                _rule(
                    "self.all(x, !has(x.tolerationSeconds) || (has(x.effect) && x.effect == 'NoExecute'))",
                    "tolerationSeconds needs the effect NoExecute",
                ),
                _rule(
                    "self.all(x, !(has(x.operator) && x.operator == 'Exists') || !has(x.value))",
                    "with Exists there is no value",
                ),
                _rule(f"self.all(x, !has(x.effect) || x.effect in {_EFFECTS})", "an unknown effect"),
            ],
        ),
        "topologyName": _reference,
    },
    **{
        "x-kubernetes-validations": [
            _rule(
                "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
                "a topology needs at least one nodeLabel",
            ),
            _rule(
                "!has(oldSelf.topologyName) || self == oldSelf",
                "the spec is immutable once topologyName is set",
            ),
        ]
    },
)
_topology = _object(
    {
        "levels": _list(
            _object(
                {"nodeLabel": {"type": "string", "minLength": 1, "maxLength": 316, "pattern": _LABEL}},
                "nodeLabel",
            ),
            16,
            least=1,
            rules=[
                _rule("self == oldSelf", "the levels are immutable"),
                _rule("self.all(i, self.exists_one(j, j == i))", "the levels must be unique"),
                _rule(
                    f"self.all(i, i.nodeLabel != '{_HOST}') || self[size(self) - 1].nodeLabel == '{_HOST}'",
                    f"{_HOST} can only be the lowest level",
                ),
            ],
        )
    },
    "levels",
)
_expression = _object(
    {"key": _text, "operator": _text, "values": _list(_text, 1000)},
    "key",
    "operator",
)
_quota = _object(
    {"name": _text, "nominalQuota": _quantity, "borrowingLimit": _quantity, "lendingLimit": _quantity},
    "name",
    "nominalQuota",
)
_group = _object(
    {
        "coveredResources": _list(_text, 64, least=1),
        "flavors": _list(
            _object(
                {"name": _reference, "resources": _list(_quota, 64, key="name", least=1)},
                "name",
                "resources",
            ),
            64,
            key="name",
            least=1,
        ),
    },
    "coveredResources",
    "flavors",
    **{
        "x-kubernetes-validations": [
            _rule(
                "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
                "each flavor has as many resources as coveredResources",
            )
        ]
    },
)
_cluster_queue = _object(
    {
        "resourceGroups": _list(_group, 16),
        "cohortName": _reference,
        "queueingStrategy": {
            "type": "string",
            "enum": ["StrictFIFO", "BestEffortFIFO"],
            "default": "BestEffortFIFO",
        },
        "namespaceSelector": _object(
            {
                "matchLabels": {"type": "object", "additionalProperties": _text},
                "matchExpressions": _list(_expression, 100),
            },
            **{"x-kubernetes-map-type": "atomic"},
        ),
        "stopPolicy": _stop,
    },
    **{
        "x-kubernetes-validations": [
            _rule(
                "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(rg, "
                "rg.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
                "borrowingLimit needs a cohort",
            )
        ]
    },
)
_local_queue = _object(
    {
        "clusterQueue": {
            **_reference,
            "x-kubernetes-validations": [_rule("self == oldSelf", "the clusterQueue is immutable")],
        },
        "stopPolicy": _stop,
    }
)
_open = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

SCHEMAS: dict[str, dict[str, Any]] = {
    kind: {"type": "object", "properties": {"spec": spec, "status": _open}}
    for kind, spec in (
        ("ResourceFlavor", _flavor),
        ("Topology", _topology),
        ("ClusterQueue", _cluster_queue),
        ("LocalQueue", _local_queue),
    )
}
