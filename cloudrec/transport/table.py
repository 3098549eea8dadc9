"""The table of transport profiles, read from profiles.yaml and validated.

A provider's folder may have a profiles.yaml in the same format, for the fabrics of its cloud. Its profiles
come first, and it may use the groups and sources of the shared file.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from cloudrec.errors import SpecError
from cloudrec.package_files import provider_tables
from cloudrec.transport.profile import Expected, HostPath, Profile, Setting, Sidecar
from cloudrec.transport.versions import fits

_FILE = "profiles.yaml"


class _TransportRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _SettingRow(_TransportRow):
    name: str = Field(pattern=r"^[A-Z][A-Z0-9_]*$")
    value: str
    reason: str = Field(min_length=1)
    source: str
    when: Mapping[str, str] = {}


class _ProfileRow(_TransportRow):
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


class _ProfileTable(_TransportRow):
    date: object
    sources: Mapping[str, str] = {}
    groups: Mapping[str, tuple[_SettingRow, ...]] = {}
    profiles: tuple[_ProfileRow, ...]


def profile_of(fabric: str, instance_type: str, *, versions: Mapping[str, str] | None = None) -> Profile:
    """Return the profile for one kind of machine.

    Args:
        fabric: efa, infiniband, tcpx, tcpxo, tcp; none without GPUs.
        instance_type: the cloud's name for the machine; an empty or unknown one gets the general profile of
            the fabric.
        versions: versions of libraries, by name, that differ from those of the profile.

    Raises:
        SpecError: there is no such fabric.
    """
    rows = [row for row in _table().profiles if row.fabric == fabric]
    named = [row for row in rows if instance_type in row.machines]
    # Of a fabric without a general profile, all machines are of one kind.
    for row in (*named, *(row for row in rows if not row.machines), *rows):
        return _built(row, versions or {})
    raise SpecError(
        f"the fabric {fabric!r} is not known",
        remedy=f"name one of {', '.join(fabrics())} in the cluster's settings",
    )


def is_named(fabric: str, instance_type: str) -> bool:
    """Return whether a profile of a fabric is for this machine, and not merely for any with that fabric."""
    return any(row.fabric == fabric and instance_type in row.machines for row in _table().profiles)


def profiles() -> tuple[Profile, ...]:
    """Return every profile, in the table's order."""
    return tuple(_built(row, {}) for row in _table().profiles)


def fabrics() -> tuple[str, ...]:
    """Return the names of all fabrics that have a profile, sorted."""
    return tuple(sorted({row.fabric for row in _table().profiles}))


def machines_of(name: str) -> tuple[str, ...]:
    """Return the names of a profile's machines; none for the general profile of a fabric."""
    return next(row.machines for row in _table().profiles if row.name == name)


@cache
def _table() -> _ProfileTable:
    text = files("cloudrec.transport").joinpath(_FILE).read_text(encoding="utf-8")
    shared = _ProfileTable.model_validate(yaml.safe_load(text))  # noqa: TID251 - shipped tables
    stated = [_ProfileTable.model_validate(yaml.safe_load(each)) for each in provider_tables(_FILE)]  # noqa: TID251 - shipped tables
    # The providers' profiles come first, so that they are found before a fabric's general profile.
    return _ProfileTable(
        date=shared.date,
        sources={**shared.sources, **{name: text for each in stated for name, text in each.sources.items()}},
        groups={**shared.groups, **{name: rows for each in stated for name, rows in each.groups.items()}},
        profiles=(*(row for each in stated for row in each.profiles), *shared.profiles),
    )


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
