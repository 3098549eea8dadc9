"""What the configuration of add-ons may hold: EKS refuses what an add-on's JSON schema does not have.

The names and types are those that DescribeAddonConfiguration returns, as users quote it, and not
complete. "true" and "false" are texts in vpc-cni's schema, and booleans in those of the CSI drivers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import yaml

from cloudrec_sandbox.aws.api.registry import operation
from cloudrec_sandbox.aws.services.eks.state import invalid_parameter, not_found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec_sandbox.aws.api.call import Call

_UNDEFINED = "is not defined in the schema and the schema does not allow additional properties"
Schema = dict[str, Any]
_TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_COUNT: Schema = {"type": "integer"}
_FLAG_TEXT: Schema = {"type": "string", "format": "boolean"}
_ANY: Schema = {"type": "object"}
_LIST: Schema = {"type": "array"}


def _object(**properties: Schema) -> Schema:
    named = {key.removesuffix("_"): schema for key, schema in properties.items()}  # `global_` is a keyword
    return {"type": "object", "additionalProperties": False, "properties": named}


_PODS = {
    "affinity": _ANY,
    "nodeSelector": _ANY,
    "podAnnotations": _ANY,
    "podLabels": _ANY,
    "tolerations": _LIST,
}
_AGENT = _object(
    enabled=_FLAG_TEXT,
    enableCloudWatchLogs=_FLAG_TEXT,
    enablePolicyEventLogs=_FLAG_TEXT,
    healthProbeBindAddr=_TEXT,
    metricsBindAddr=_TEXT,
    resources=_ANY,
)
_NODE = _object(
    **{key: _PODS[key] for key in ("affinity", "nodeSelector", "tolerations")},
    resources=_ANY,
    tolerateAllTaints=_FLAG,
)
_MONITOR = _object(
    **{key: _PODS[key] for key in ("affinity", "nodeSelector", "podAnnotations", "podLabels", "tolerations")},
    resources=_ANY,
)
_SCHEMAS: dict[str, Schema] = {
    "vpc-cni": _object(
        **_PODS,
        enableNetworkPolicy=_FLAG_TEXT,
        enableWindowsIpam=_FLAG_TEXT,
        env=_ANY,
        init=_ANY,
        livenessProbeTimeoutSeconds=_COUNT,
        nodeAgent=_AGENT,
        readinessProbeTimeoutSeconds=_COUNT,
        resources=_ANY,
    ),
    "kube-proxy": _object(
        ipvs=_ANY, mode=_TEXT, podAnnotations=_ANY, podLabels=_ANY, resources=_ANY, tolerations=_LIST
    ),
    "coredns": _object(
        **_PODS,
        autoScaling=_ANY,
        computeType=_TEXT,
        corefile=_TEXT,
        podDisruptionBudget=_ANY,
        replicaCount=_COUNT,
        resources=_ANY,
        topologySpreadConstraints=_LIST,
    ),
    "eks-pod-identity-agent": _object(**_PODS, agent=_ANY, priorityClassName=_TEXT, resources=_ANY),
    "aws-ebs-csi-driver": _object(controller=_ANY, defaultStorageClass=_ANY, node=_NODE),
    "aws-fsx-csi-driver": _object(controller=_ANY, node=_NODE),
    "aws-mountpoint-s3-csi-driver": _object(
        controller=_ANY, experimental=_ANY, mountpointPod=_ANY, node=_NODE
    ),
    # "Configure the Amazon EKS node monitoring agent", EKS's user guide, and aws/eks-node-monitoring-agent,
    # charts/eks-node-monitoring-agent/values.schema.json.
    "eks-node-monitoring-agent": _object(
        nodeAgent=_MONITOR, dcgmAgent=_MONITOR, global_=_object(podAnnotations=_ANY, podLabels=_ANY)
    ),
    "metrics-server": _object(**_PODS, addonResizer=_ANY, args=_LIST, replicas=_COUNT, resources=_ANY),
    "amazon-cloudwatch-observability": _object(agent=_ANY, agents=_LIST, containerLogs=_ANY, manager=_ANY),
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": float,
    "object": dict,
    "string": str,
}


def check(name: str, values: str | None) -> None:
    """Raise InvalidParameterException for a configuration (JSON or YAML) that does not fit the schema."""
    if values is None:
        return
    try:
        given = yaml.safe_load(values)
    except yaml.YAMLError as error:
        raise invalid_parameter(
            f"ConfigurationValue provided in request is not supported: {error}", addonName=name
        ) from error
    fault = next(_faults(_SCHEMAS[name], given, "$"), None)
    if fault is not None:
        raise invalid_parameter(
            "ConfigurationValue provided in request is not supported: Json schema validation failed with "
            f"error: [{fault}]",
            addonName=name,
        )


def _faults(schema: Schema, value: object, path: str) -> Iterator[str]:
    found = next(name for name, kind in _TYPES.items() if isinstance(value, kind))
    if found != schema["type"]:
        yield f"{path}: {found} found, {schema['type']} expected"
        return
    if not isinstance(value, dict) or "properties" not in schema:
        return
    for key, inner in value.items():
        if key not in schema["properties"]:
            yield f"{path}.{key}: {_UNDEFINED}"
        else:
            yield from _faults(schema["properties"][key], inner, f"{path}.{key}")


@operation("eks", "DescribeAddonConfiguration")
def describe_addon_configuration(call: Call) -> dict[str, Any]:
    """Return the schema of an add-on's configuration."""
    name = call.params["addonName"]
    if name not in _SCHEMAS:
        raise not_found(f"No addon found with name {name}", addonName=name)
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **_SCHEMAS[name]}
    version = call.params["addonVersion"]
    return {"addonName": name, "addonVersion": version, "configurationSchema": json.dumps(schema)}
