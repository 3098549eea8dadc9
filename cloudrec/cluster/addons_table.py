"""The table of add-ons: read once from addons.yaml, validated, and looked up by name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cloudrec.errors import UsageError
from cloudrec.spec.suggest import did_you_mean

_FILE = "addons.yaml"
_HASH = r"^[0-9a-f]{64}$"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provides(_Strict):
    """By what a cluster shows that it has an add-on, whoever installed it.

    Attributes:
        resources: what nodes have to allocate.
        crds: kinds that are defined, by their definitions' names.
        drivers: CSI drivers.
    """

    resources: tuple[str, ...] = ()
    crds: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


class Release(_Strict):
    """What upstream publishes, and how objects are had from it.

    Attributes:
        archive: address of a .tar.gz; empty where `manifest` is.
        manifest: address of one YAML file; empty where `archive` is.
        sha256: of what is fetched; empty where nobody here knows it.
        files: files in the archive, in the order in which they are applied.
        folder: or the folder in it that kustomize is to build.
        kustomization: what that folder's kustomization is to say, where the release's own will not do.
        images: tags that images' repositories are to have, where the release does not pin them.
    """

    archive: str = ""
    manifest: str = ""
    sha256: str = Field(default="", pattern=rf"^$|{_HASH}")
    files: tuple[str, ...] = ()
    folder: str = ""
    kustomization: dict[str, Any] = {}
    images: dict[str, str] = {}

    @property
    def url(self) -> str:
        """What is fetched."""
        return self.archive or self.manifest

    @model_validator(mode="after")
    def _is_whole(self) -> Release:
        if bool(self.archive) == bool(self.manifest):
            raise ValueError("a release has either an archive or a manifest")
        if self.archive and bool(self.files) == bool(self.folder):
            raise ValueError("of an archive either files or a folder is taken")
        return self


class Addon(_Strict):
    """One add-on.

    Attributes:
        name: its name.
        version: which is installed.
        date: when that was published or looked up.
        source: by whom.
        purpose: what it is for.
        optional: whether it is installed only when asked for.
        launcher: the launcher whose operator it is.
        needs: other add-ons that must be there first.
        requires: kinds that the cluster itself must have.
        images: of our own templates, by their part in them.
        provides: by what it shows that it is there.
        release: what upstream publishes; None where templates of ours are taken.
    """

    name: str
    version: str
    date: object
    source: str
    purpose: str
    optional: bool = False
    launcher: str = ""
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    images: dict[str, str] = {}
    provides: Provides = Provides()
    release: Release | None = None


class _Table(_Strict):
    date: object
    addons: dict[str, dict[str, Any]]


@cache
def addons() -> dict[str, Addon]:
    """Return every add-on by its name."""
    text = files("cloudrec.cluster").joinpath(_FILE).read_text(encoding="utf-8")
    table = _Table.model_validate(yaml.safe_load(text))
    return {name: Addon(name=name, **row) for name, row in table.addons.items()}


def addon_of(name: str) -> Addon:
    """Return one add-on; UsageError where there is none of that name."""
    known = addons()
    if name not in known:
        raise UsageError(
            f"there is no add-on {name!r}", remedy=did_you_mean(name, sorted(known)) or ", ".join(known)
        )
    return known[name]


def addon_for(launcher: str) -> Addon | None:
    """Return the add-on that runs a launcher's objects; None where Kubernetes itself does."""
    return next((each for each in addons().values() if each.launcher == launcher), None)
