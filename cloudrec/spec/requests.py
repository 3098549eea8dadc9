"""The request of an `up` in the journal, which this version reads even if an earlier one wrote it.

A release that renames or removes a key of `ClusterSpec` raises REQUEST_VERSION and adds the step to
UPGRADES, so that it can use the clusters of the release before. Keys that no step converts are omitted and
named: such a cluster can still be shown and removed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from cloudrec.spec import REQUEST_VERSION
from cloudrec.spec.models import ClusterSpec, own_errors

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]

UPGRADES: Mapping[int, Upgrade] = MappingProxyType({})  # from a version to the next one


@dataclass(frozen=True, kw_only=True)
class StoredSpec:
    """A stored request, as far as it can be read.

    Attributes:
        cluster: the spec, without the keys that this version does not know or whose values it refuses.
        problem: the omitted keys and the reasons; empty if there are none.
    """

    cluster: ClusterSpec
    problem: str = ""


def read_request(
    stored: Mapping[str, Any],
    *,
    name: str,
    provider: str,
    version: int = REQUEST_VERSION,
    upgrades: Mapping[int, Upgrade] = UPGRADES,
    newest: int = REQUEST_VERSION,
) -> StoredSpec:
    """Return the stored request as a specification of this version.

    Args:
        stored: the keys of a ClusterSpec of its time.
        name: the cluster's name, which replaces the stored one.
        provider: the cluster's provider, likewise.
        version: the REQUEST_VERSION of the stored keys.
        upgrades: the steps from each version to the next.
        newest: the version after the last step.
    """
    values, problems = dict(stored), list[str]()
    if version > newest:
        problems.append(f"it was written by a newer cloudrec (version {version}; this one reads {newest})")
    for step in range(version, newest):
        values = upgrades[step](values)
    values |= {"name": name, "provider": provider}
    try:
        return StoredSpec(cluster=ClusterSpec.model_validate(values), problem="; ".join(problems))
    except ValidationError as error:
        refused = {str(detail["loc"][0]): detail for detail in own_errors(error) if detail["loc"]}
    problems += [_reason(key, detail["type"], detail["msg"]) for key, detail in sorted(refused.items())]
    kept = {key: value for key, value in values.items() if key not in refused}
    return StoredSpec(cluster=_spec_of(kept, name=name, provider=provider), problem="; ".join(problems))


def _spec_of(values: Mapping[str, Any], *, name: str, provider: str) -> ClusterSpec:
    try:
        return ClusterSpec.model_validate(values)
    except ValidationError:  # even its name is not valid; without validation, it can still be shown
        return ClusterSpec.model_construct(name=name, provider=provider)


def _reason(key: str, kind: str, message: str) -> str:
    if kind == "extra_forbidden":
        return f"its key {key!r} is not known to this cloudrec"
    return f"its {key!r} is refused: {message.removeprefix('Value error, ')}"
