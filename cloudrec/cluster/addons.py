"""The add-ons of a cluster: what it needs, installed and upgraded in place, removed, and told of.

needed(target)    what its GPU nodes need, by their transport profile and what the cloud has put there
converge(...)     bring that about
install, remove   one add-on, also those that are options
listed(kube)      what is there
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.cluster import addons_ours, addons_release, inventory
from cloudrec.cluster.addons_apply import apply_all, delete_all, used_kinds
from cloudrec.cluster.addons_table import Addon, addon_for, addon_of, addons
from cloudrec.cluster.presence import elsewhere
from cloudrec.cluster.readiness import waiting
from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError
from cloudrec.manifests import namespace_objects
from cloudrec.plan.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.cluster.inventory import Record, Reference
    from cloudrec.kube.client import Kube
    from cloudrec.kube.target import Target

__all__ = ["Addon", "Installed", "addon_for", "addon_of", "converge", "install", "listed", "needed", "remove"]

_READY_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Installed:
    """One add-on that a cluster has.

    Attributes:
        name: its name.
        version: which; empty where somebody else has installed it.
        newest: the version that this cloudrec installs.
        is_ours: whether cloudrec has installed it.
        is_whole: whether its installation went to its end.
        sha256: of the release that was fetched; empty for templates of ours.
        objects: how many objects it consists of.
        by: by what it was recognised, where somebody else has installed it.
    """

    name: str
    version: str
    newest: str
    is_ours: bool
    is_whole: bool = True
    sha256: str = ""
    objects: int = 0
    by: str = ""


def needed(target: Target) -> list[Addon]:
    """Return what a cluster needs so that pods get its GPUs, cards and volumes, in the order of it."""
    names = [
        name for name in profile_of(target.fabric, target.instance_type).addons if name not in target.built_in
    ]
    return [addon_of(name) for name in (*names, *(["volumes"] if target.volumes else []))]


def converge(
    kube: Kube,
    target: Target,
    cluster: str,
    owner: str,
    report: Callable[[str], None],
    *,
    clock: Clock | None = None,
    wait_s: float = _READY_S,
) -> list[Record]:
    """Install what a cluster needs, upgrade what is older, and wait until it is ready.

    What somebody else has installed is left alone. What is not ready in time is told, and does not fail:
    nodes may still be coming up.

    Args:
        kube: the cluster.
        target: what its nodes need.
        cluster: its name.
        owner: who answers for it.
        report: is told of each step, a line each.
        clock: by which is waited.
        wait_s: seconds in which all of it should be ready; 0 not to wait.

    Returns:
        What cloudrec has installed there of what is needed.
    """
    site = _Site(
        kube=kube, target=target, cluster=cluster, owner=owner, report=report, clock=clock or Clock()
    )
    made = [site.install(addon) for addon in needed(target)]
    records = [record for record in made if record is not None]
    site.wait([each for record in records for each in record.objects], wait_s)
    return records


def install(
    kube: Kube,
    name: str,
    target: Target,
    *,
    cluster: str,
    owner: str,
    report: Callable[[str], None],
    sha256: str = "",
    force: bool = False,
    clock: Clock | None = None,
    wait_s: float = _READY_S,
) -> Record | None:
    """Install one add-on, with what it needs, or upgrade it; None where somebody else has installed it.

    Args:
        kube: the cluster.
        name: the add-on's.
        target: what the nodes need.
        cluster: its name.
        owner: who answers for it.
        report: is told of each step.
        sha256: of the release, where the table does not know it.
        force: also where somebody else has installed it: take it over.
        clock: by which is waited.
        wait_s: seconds in which it should be ready; 0 not to wait.

    Raises:
        UsageError: there is no such add-on.
        PreflightError: it cannot be fetched, its hash is not right, or an object is somebody else's.
    """
    addon = addon_of(name)
    site = _Site(
        kube=kube, target=target, cluster=cluster, owner=owner, report=report, clock=clock or Clock()
    )
    record = site.install(addon, sha256=sha256, force=force)
    site.wait(record.objects if record else (), wait_s)
    return record


def remove(
    kube: Kube, name: str, *, report: Callable[[str], None], force: bool = False
) -> tuple[inventory.Reference, ...]:
    """Remove an add-on: what bears our label, and nothing else; return what is gone.

    Args:
        kube: the cluster.
        name: the add-on's.
        report: is told of it.
        force: also where objects of its kinds are there, which go with it.

    Raises:
        PreflightError: cloudrec has not installed it, or there are objects of its kinds.
    """
    record = inventory.read(kube, name)
    if record is None:
        raise PreflightError(f"cloudrec has not installed {name} on this cluster")
    if not force and (used := used_kinds(kube, record)):
        raise PreflightError(
            f"{name} cannot be removed: with it would go {', '.join(used)}",
            remedy="delete them first, or say --force",
        )
    gone = delete_all(kube, tuple(reversed(record.objects)), record.cluster)
    inventory.forget(kube, name)
    report(f"{name} {record.version} removed: {len(gone)} objects")
    return gone


def remove_all(kube: Kube, cluster: str, *, report: Callable[[str], None]) -> list[str]:
    """Remove every add-on that cloudrec has installed for a cluster, the last one first.

    An operator of whose kinds somebody has objects stays, since they would go with it; it is told of.

    Returns:
        The names of those that stay.
    """
    mine = [record for record in inventory.read_all(kube) if record.cluster == cluster]
    rank = {name: number for number, name in enumerate(addons())}
    ranked = sorted(mine, key=lambda each: rank.get(each.name, len(rank)), reverse=True)
    left = []
    for record in ranked:
        try:
            remove(kube, record.name, report=report)
        except PreflightError as error:
            report(error.message)
            left.append(record.name)
    return left


def listed(kube: Kube) -> list[Installed]:
    """Return what a cluster has of the add-ons that cloudrec knows, whoever installed it."""
    ours = {record.name: record for record in inventory.read_all(kube)}
    found = []
    for name, addon in addons().items():
        if name in ours:
            record = ours[name]
            found.append(
                Installed(
                    name=name,
                    version=record.version,
                    newest=addon.version,
                    is_ours=True,
                    is_whole=record.is_whole,
                    sha256=record.sha256,
                    objects=len(record.objects),
                )
            )
        elif by := elsewhere(kube, addon):
            found.append(Installed(name=name, version="", newest=addon.version, is_ours=False, by=by))
    return found


@dataclass(frozen=True, kw_only=True)
class _Site:
    """One cluster, and who is told of what is done to it."""

    kube: Kube
    target: Target
    cluster: str
    owner: str
    report: Callable[[str], None]
    clock: Clock

    def install(self, addon: Addon, *, sha256: str = "", force: bool = False) -> Record | None:
        """Install or upgrade one add-on; None where somebody else has installed it."""
        before = inventory.read(self.kube, addon.name)
        if before is None and not force and (by := elsewhere(self.kube, addon)):
            self.report(f"{addon.name} is there already ({by}) and is left as it is")
            return None
        self._check(addon)
        objects, found = self._objects(addon, sha256)
        record = inventory.Record(
            name=addon.name,
            version=addon.version,
            sha256=found,
            cluster=self.cluster,
            owner=self.owner,
            objects=(),
            is_whole=False,
        )
        applied = apply_all(self.kube, record, objects, clock=self.clock, force=force)
        self.report(_told(addon, before, len(applied.removed)))
        return applied.record

    def wait(self, references: Sequence[Reference], wait_s: float) -> None:
        """Wait until objects are ready, and tell of those that are not."""
        for state in waiting(self.kube, references, self.clock, wait_s) if wait_s else []:
            self.report(f"{state.what} is not ready yet: {state.found}")

    def _check(self, addon: Addon) -> None:
        for kind in addon.requires:
            if not self.kube.kinds.has(kind):
                raise PreflightError(
                    f"{addon.name} needs the kind {kind}, which this cluster does not have",
                    remedy="the cluster was made without it: for networks of pods' own, multi-networking",
                )
        for other in addon.needs:
            if inventory.read(self.kube, other) is None and not elsewhere(self.kube, addon_of(other)):
                raise PreflightError(
                    f"{addon.name} needs {other}, which is not installed", remedy=f"install {other} first"
                )

    def _objects(self, addon: Addon, sha256: str) -> tuple[list[dict[str, Any]], str]:
        if addon.release:
            return addons_release.objects_of(addon, sha256=sha256)
        labels = inventory.labels_of(addon.name, self.cluster, self.owner)
        made = addons_ours.objects_of(addon, self.target, cluster=self.cluster, labels=labels)
        if addon.name == "volumes" and self.kube.get("Namespace", self.target.namespace) is None:
            # Claims live where runs do; the namespace is not the add-on's, and stays when that goes.
            for manifest in namespace_objects(self.target, self.cluster, self.owner)[:1]:
                self.kube.apply(manifest)
        return made, ""


def _told(addon: Addon, before: Record | None, removed: int) -> str:
    gone = f", {removed} objects of it removed" if removed else ""
    if before is None:
        return f"{addon.name} {addon.version} installed: {addon.purpose}"
    if before.version != addon.version:
        return f"{addon.name} upgraded from {before.version} to {addon.version}{gone}"
    return f"{addon.name} {addon.version} is up to date{gone}"
