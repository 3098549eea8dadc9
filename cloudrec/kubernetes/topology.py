"""The order of a run's nodes by the cluster's network: nodes that share a rack get neighbouring ranks.

Clouds label their nodes with the parts of the network that they are in. A pod cannot read the labels of its
node, and a run's pods have no token of the API server. So the launcher writes a table of the nodes into a
ConfigMap of the namespace, which pods mount, and the guard keeps it up to date. Each agent computes from it
the key by which torch sorts the nodes of its rendezvous. The table has a short digest of each value, so that
it fits into a ConfigMap for thousands of nodes.

Manifests do not grow with the number of nodes, since the table is not a part of them.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import AbsentError, DeniedError
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cloudrec.kubernetes.client.client import Kube

NAME, FILE = "cloudrec-topology", "nodes.json"
FOLDER = "/etc/cloudrec-topology"
# NVIDIA's label of the nodes that NVLink connects (GPU feature discovery, k8s-device-plugin's documentation).
# It is inside the narrowest part of the network, and the same on each cloud.
NVLINK = "nvidia.com/gpu.clique"
_DIGEST = 6  # hexadecimal digits: two of a thousand values are equal with a probability of 3 %
_UNKNOWN = "~"  # after all digests: nodes that are not in the table come last
_NUMBER = re.compile(r"\d+")
_WIDTH = 8
_LIMIT = 1_000_000  # bytes; the limit of a ConfigMap's data is 1 MiB


def table(nodes: Iterable[Mapping[str, Any]], labels: Sequence[str]) -> dict[str, str]:
    """Return the place of each node that has one of the labels, by name.

    Args:
        nodes: the nodes, or their metadata alone.
        labels: the labels of the parts of the network, the widest part first.
    """
    found = {}
    for node in nodes:
        values = [(node["metadata"].get("labels") or {}).get(label, "") for label in (*labels, NVLINK)]
        if any(values):
            parts = (sha256(value.encode()).hexdigest()[:_DIGEST] if value else "" for value in values)
            found[str(node["metadata"]["name"])] = "/".join(parts)
    return found


def key(places: Mapping[str, str], node: str, host: str) -> str:
    """Return the key by which the pods of a run are sorted: the place of the node, then the host's number.

    Args:
        places: the table.
        node: the name of the pod's node.
        host: the pod's host name or address.
    """
    padded = _NUMBER.sub(lambda found: found[0].zfill(_WIDTH), host)
    return f"{places.get(node, _UNKNOWN)} {padded}"


def read(text: str) -> dict[str, str]:
    """Return the places in a table's text; none if it is damaged, since a run does not depend on them."""
    try:
        places = safe_object(text)["nodes"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {str(name): str(place) for name, place in places.items()} if isinstance(places, dict) else {}


def places_in(kube: Kube, namespace: str) -> dict[str, str]:
    """Return the places in the table of a namespace; none if it has none."""
    found = kube.get("ConfigMap", NAME, namespace=namespace)
    return read(((found or {}).get("data") or {}).get(FILE, ""))


def publish(kube: Kube, namespace: str, labels: Sequence[str], *, own: Mapping[str, str]) -> int:
    """Write the table of a cluster's nodes into its ConfigMap; return the number of nodes in it.

    Args:
        kube: the cluster.
        namespace: the namespace of the runs.
        labels: the labels of the parts of the network, the widest part first.
        own: labels for the ConfigMap.
    """
    try:
        places = table(kube.list("Node", metadata_only=True), labels)
    except DeniedError:  # of an adopted cluster: runs are ordered by the names of their pods
        return 0
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": namespace, "labels": dict(own)},
        "data": {FILE: _text(labels, places)},
    }
    kube.apply(body, force=True)  # the guard may have written it last
    return len(places)


def refresh(kube: Kube, namespace: str) -> bool:
    """Write the present nodes into the table, if there is one; return whether it has changed."""
    found = kube.get("ConfigMap", NAME, namespace=namespace)
    if found is None:
        return False
    before = (found.get("data") or {}).get(FILE, "")
    try:
        labels = [str(label) for label in safe_object(before)["labels"]]
    except (ValueError, KeyError, TypeError):  # the next launch writes it again
        return False
    after = _text(labels, table(kube.list("Node", metadata_only=True), labels))
    if after == before:
        return False
    try:
        kube.patch("ConfigMap", NAME, {"data": {FILE: after}}, namespace=namespace)
    except AbsentError:
        return False
    return True


def _text(labels: Sequence[str], places: Mapping[str, str]) -> str:
    """Return the table's text; without places where it would not fit, so that runs use the pods' names."""
    text = json.dumps({"labels": list(labels), "nodes": dict(sorted(places.items()))}, separators=(",", ":"))
    return text if len(text) < _LIMIT else json.dumps({"labels": list(labels), "nodes": {}})
