"""The table of add-ons, read from addons.yaml and validated.

A provider's folder may have an addons.yaml in the same format, for the device plugins of its cloud.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cloudrec.errors import UsageError
from cloudrec.package_files import provider_tables
from cloudrec.spec.suggest import did_you_mean

_FILE = "addons.yaml"
_HASH = r"^[0-9a-f]{64}$"


class _AddonRow(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Provides(_AddonRow):
    """The signs by which an add-on is recognised in a cluster, whether or not cloudrec installed it.

    Attributes:
        resources: resource names that nodes can allocate.
        crds: names of CustomResourceDefinitions.
        drivers: names of CSI drivers.
    """

    resources: tuple[str, ...] = ()
    crds: tuple[str, ...] = ()
    drivers: tuple[str, ...] = ()


class Release(_AddonRow):
    """An upstream release, and how its objects are read.

    Attributes:
        archive: URL of a .tar.gz; empty if `manifest` is set.
        manifest: URL of one YAML file; empty if `archive` is set.
        sha256: digest of the downloaded file; empty if it is unknown.
        files: files in the archive, in the order in which they are applied.
        folder: instead of `files`, the folder in the archive that kustomize builds.
        kustomization: a kustomization that replaces the folder's own; empty to keep that.
        images: tags by image repository, for images that the release does not pin.
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
        """The URL that is downloaded."""
        return self.archive or self.manifest

    @model_validator(mode="after")
    def _is_whole(self) -> Release:
        if bool(self.archive) == bool(self.manifest):
            raise ValueError("a release has either an archive or a manifest")
        if self.archive and bool(self.files) == bool(self.folder):
            raise ValueError("an archive needs either files or a folder")
        return self


class Addon(_AddonRow):
    """One add-on.

    Attributes:
        name: its name.
        version: the version that is installed.
        date: when the version was published or looked up.
        source: where the version was published.
        purpose: a phrase on its purpose.
        optional: whether it is installed only on request.
        launcher: the launcher that needs it as operator; empty for none.
        needs: other add-ons that must be installed first.
        then: add-ons that are installed after it, once it is ready, and removed before it.
        requires: kinds that the cluster must have.
        without: what to do in a cluster without these kinds; empty for the usual remedy.
        follows_nodes: whether its objects depend on the present nodes, so that `up` renews them.
        ready_s: seconds that its pods need on a new node; the wait for an installation is at least as long.
        images: images for cloudrec's templates, by the name of the value.
        provides: the signs by which it is recognised.
        release: the upstream release; None for an add-on of cloudrec's templates.
    """

    name: str
    version: str
    date: object
    source: str
    purpose: str
    optional: bool = False
    launcher: str = ""
    needs: tuple[str, ...] = ()
    then: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    without: str = ""
    follows_nodes: bool = False
    ready_s: float = 0
    images: dict[str, str] = {}
    provides: Provides = Provides()
    release: Release | None = None


class _AddonTable(_AddonRow):
    date: object
    addons: dict[str, dict[str, Any]]


@cache
def addons() -> dict[str, Addon]:
    """Return every add-on by its name."""
    text = files("cloudrec.kubernetes.addons").joinpath(_FILE).read_text(encoding="utf-8")
    tables = [_AddonTable.model_validate(yaml.safe_load(each)) for each in (text, *provider_tables(_FILE))]  # noqa: TID251 - shipped tables
    return {name: Addon(name=name, **row) for table in tables for name, row in table.addons.items()}


def addon_of(name: str) -> Addon:
    """Return one add-on; UsageError if there is none of that name."""
    known = addons()
    if name not in known:
        raise UsageError(
            f"there is no add-on {name!r}", remedy=did_you_mean(name, sorted(known)) or ", ".join(known)
        )
    return known[name]


def addon_for(launcher: str) -> Addon | None:
    """Return the operator of a launcher; None if Kubernetes runs its objects without one."""
    return next((each for each in addons().values() if each.launcher == launcher), None)
