"""The table of transport profiles: read once from profiles.yaml, validated, and looked up."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from cloudrec.errors import SpecError
from cloudrec.plan.transport.profile import Expected, HostPath, Profile, Setting, Sidecar
from cloudrec.plan.transport.versions import fits

_FILE = "profiles.yaml"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _SettingRow(_Strict):
    name: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    value: str
    reason: str = Field(min_length=1)
    source: str
    when: Mapping[str, str] = {}


class _ProfileRow(_Strict):
    name: str
    fabric: str
    machines: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    settings: tuple[_SettingRow, ...] = ()
    libraries: Mapping[str, str]
    card_resource: str = ""
    cards: int = Field(default=0, ge=0)
    resources: Mapping[str, str] = {}
    shm_gib: int = Field(gt=0)
    user: int = Field(default=10001, ge=0)
    capabilities: tuple[str, ...] = ()
    host_paths: tuple[HostPath, ...] = ()
    sidecars: tuple[Sidecar, ...] = ()
    annotations: Mapping[str, str] = {}
    default_interface: str = ""
    script: str = ""
    addons: tuple[str, ...] = ()
    expects: Expected = Expected()
    sources: tuple[str, ...] = Field(min_length=1)


class _Table(_Strict):
    date: object
    sources: Mapping[str, str]
    groups: Mapping[str, tuple[_SettingRow, ...]]
    profiles: tuple[_ProfileRow, ...]


def profile_of(fabric: str, instance_type: str, *, versions: Mapping[str, str] | None = None) -> Profile:
    """Return what a pod needs on one kind of machine.

    Args:
        fabric: efa, infiniband, tcpx, tcpxo, tcp; none without GPUs.
        instance_type: the cloud's name of the machine; empty, or one that nobody knows, gets what the
            fabric's machines need in general.
        versions: of libraries, where they differ from those that the profile is written for.

    Raises:
        SpecError: there is no such fabric.
    """
    rows = [row for row in _table().profiles if row.fabric == fabric]
    for row in rows:
        if not row.machines or any(fnmatchcase(instance_type, pattern) for pattern in row.machines):
            return _built(row, versions or {})
    known = sorted({row.fabric for row in _table().profiles})
    raise SpecError(
        f"nobody knows the fabric {fabric!r}",
        remedy=f"say one of {', '.join(known)} in the cluster's settings",
    )


def profiles() -> tuple[Profile, ...]:
    """Return every profile, in the table's order."""
    return tuple(_built(row, {}) for row in _table().profiles)


def machines_of(name: str) -> tuple[str, ...]:
    """Return the patterns of a profile's machines; none where it is its fabric's general one."""
    return next(row.machines for row in _table().profiles if row.name == name)


@cache
def _table() -> _Table:
    text = files("cloudrec.plan.transport").joinpath(_FILE).read_text(encoding="utf-8")
    return _Table.model_validate(yaml.safe_load(text))


def _built(row: _ProfileRow, versions: Mapping[str, str]) -> Profile:
    table = _table()
    libraries = {**row.libraries, **versions}
    given = [each for group in row.groups for each in table.groups[group]] + list(row.settings)
    values: dict[str, Any] = {
        name: value for name, value in row if name not in {"machines", "groups", "settings"}
    }
    values |= {
        "settings": tuple(
            Setting(name=each.name, value=each.value, reason=each.reason, source=table.sources[each.source])
            for each in given
            if all(fits(libraries.get(library, ""), wanted) for library, wanted in each.when.items())
        ),
        "libraries": libraries,
        "sources": tuple(table.sources[each] for each in row.sources),
    }
    return Profile(**values)
