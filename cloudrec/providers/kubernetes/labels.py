"""How objects say whose they are: labels, by which they are found, and the engine's tags in an annotation."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from cloudrec.engine.graph import TAG_CLUSTER, TAG_KEY, TAG_OWNER

if TYPE_CHECKING:
    from collections.abc import Mapping

MANAGED, CLUSTER, OWNER = "app.kubernetes.io/managed-by", "cloudrec/cluster", "cloudrec/owner"
OURS = "cloudrec"
_TAGS = "cloudrec/tags"
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST = 63


def metadata(tags: Mapping[str, str]) -> dict[str, Any]:
    """Return the labels and annotations of an object with these tags."""
    return {
        "labels": {MANAGED: OURS, CLUSTER: tags[TAG_CLUSTER], OWNER: _fitting(tags[TAG_OWNER])},
        "annotations": {_TAGS: json.dumps(dict(tags), sort_keys=True)},
    }


def selector(cluster: str | None) -> str:
    """Return a selector of what is of this cluster, or where that is None of any of ours."""
    return f"{MANAGED}={OURS},{CLUSTER}" + (f"={cluster}" if cluster is not None else "")


def tags_of(found: Mapping[str, Any], kind: str) -> dict[str, str]:
    """Return the tags of an object; what launchers and add-ons made has labels alone.

    Args:
        found: the object.
        kind: the kind by which its key is made where it has none.
    """
    given = found["metadata"]
    labels = given.get("labels") or {}
    if labels.get(MANAGED) != OURS or CLUSTER not in labels:
        return {}
    try:
        told = json.loads((given.get("annotations") or {}).get(_TAGS, ""))
        tags = {str(name): str(value) for name, value in told.items()}
    except (ValueError, AttributeError):
        tags = {}
    if tags.get(TAG_CLUSTER) == labels[CLUSTER]:
        return tags
    name = "/".join(filter(None, (given.get("namespace", ""), given["name"])))
    owner = {TAG_OWNER: labels[OWNER]} if OWNER in labels else {}
    return {TAG_CLUSTER: labels[CLUSTER], TAG_KEY: f"{kind}/{name}", **owner}


def are_marked(found: Mapping[str, Any]) -> bool:
    """Tell whether an object was made by the engine: it bears its tags."""
    return _TAGS in (found["metadata"].get("annotations") or {})


def erased() -> dict[str, Any]:
    """Return a change that takes what is ours off an object."""
    return {
        "metadata": {"labels": dict.fromkeys((MANAGED, CLUSTER, OWNER)), "annotations": {_TAGS: None}},
    }


def _fitting(value: str) -> str:
    """Return a value as a label may hold it."""
    return _UNFIT.sub("-", value)[:_LONGEST].strip("-_.")
