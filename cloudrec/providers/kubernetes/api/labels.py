"""Labels, by which cloudrec finds its objects, and the annotation that holds the engine's tags."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED, CLUSTER, OWNER = "app.kubernetes.io/managed-by", "cloudrec/cluster", "cloudrec/owner"
ADD_ON = "cloudrec/addon"  # the add-on that the object is part of
ROLE = "cloudrec/role"
OURS = "cloudrec"
UID = "cloudrec/uid"  # the uid that the object had when it was created
TAGS = "cloudrec/tags"
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 63  # Kubernetes' limit for a label's value


def metadata(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the labels and annotations of an object with these tags."""
    return {
        "labels": {MANAGED: OURS, CLUSTER: tags[TAG_CLUSTER], OWNER: _fitting(tags[TAG_OWNER])},
        "annotations": {TAGS: json.dumps(dict(tags), sort_keys=True)},
    }


def selector(cluster: str | None) -> str:
    """Return a label selector for the objects of one cluster; None is for all of cloudrec's."""
    return f"{MANAGED}={OURS},{CLUSTER}" + (f"={cluster}" if cluster is not None else "")


def tags_of(found: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the tags of an object; empty if it has no cloudrec labels.

    Objects of launchers and add-ons have labels only; their tags are computed from these.

    Args:
        found: the object.
        kind: the kind in the computed key.
    """
    given = found["metadata"]
    labels = given.get("labels") or {}
    if labels.get(MANAGED) != OURS or CLUSTER not in labels:
        return {}
    try:
        written = safe_object((given.get("annotations") or {}).get(TAGS, ""))
        tags = {str(name): str(value) for name, value in written.items()}
    except (ValueError, AttributeError):
        tags = {}
    # The annotation counts only if it agrees with the label, by which searches find the object.
    if tags.get(TAG_CLUSTER) == labels[CLUSTER]:
        return tags
    name = "/".join(filter(None, (given.get("namespace", ""), given["name"])))
    owner = {TAG_OWNER: labels[OWNER]} if OWNER in labels else {}
    return {TAG_CLUSTER: labels[CLUSTER], TAG_KEY: f"{kind}/{name}", **owner}


def are_marked(found: Mapping[str, Any]) -> bool:
    """Return whether the engine made an object: it has the annotation with tags."""
    return TAGS in (found["metadata"].get("annotations") or {})


def is_made(found: Mapping[str, Any], cluster: str) -> bool:
    """Return whether `up` created an object for a cluster, so that it may change and delete it.

    Labels alone do not prove that. Tags do not either, since a restored backup copies them; but it has
    another uid.
    """
    given = found["metadata"].get("annotations") or {}
    is_marked = are_marked(found) and tags_of(found, "").get(TAG_CLUSTER) == cluster
    return is_marked and given.get(UID, found["metadata"]["uid"]) == found["metadata"]["uid"]


def _fitting(value: str) -> str:
    """Return a value that is valid as a label: other characters become a hyphen."""
    return _UNFIT.sub("-", value)[:_LONGEST].strip("-_.")
