"""Installs, upgrades, removes and lists the add-ons of a cluster.

needed(target)    the add-ons that its GPU nodes need, without those that the cloud installs
converge(...)     install and upgrade these
install, remove   one add-on, needed or optional
listed(kube)      the add-ons that the cluster has
lacking(kube)     the needed add-ons that are missing or not ready
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cloudrec.engine.clock import Clock
from cloudrec.errors import PreflightError
from cloudrec.kubernetes.addons import bundled, gpu_nodes, inventory, upstream
from cloudrec.kubernetes.addons.apply import apply_all
from cloudrec.kubernetes.addons.presence import elsewhere
from cloudrec.kubernetes.addons.queue_objects import queue_objects
from cloudrec.kubernetes.addons.readiness import waiting
from cloudrec.kubernetes.addons.removal import GONE_S, remove_objects
from cloudrec.kubernetes.addons.table import Addon, addon_for, addon_of, addons
from cloudrec.kubernetes.client.errors import KubeError, OverloadedError
from cloudrec.kubernetes.namespaces import prepare
from cloudrec.kubernetes.queues.pools import pools_of
from cloudrec.transport import profile_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.kubernetes.addons.inventory import AddonRecord
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.kubernetes.client.target import ClusterTarget

__all__ = [
    "Addon",
    "Installed",
    "addon_for",
    "addon_of",
    "converge",
    "install",
    "install_metrics",
    "lacking",
    "listed",
    "needed",
    "remove",
]

_READY_S = 300.0
_GPU_PLUGIN, _QUEUES = "nvidia-device-plugin", "kueue-queues"
_GPU_METRICS, _GPUS = "gpu-metrics", "nvidia.com/gpu"
_SERVED_S, _POLL_S = 60.0, 0.5


@dataclass(frozen=True, kw_only=True)
class Installed:
    """One add-on that a cluster has.

    Attributes:
        name: its name.
        version: its version; empty if cloudrec has not installed it.
        newest: the version that this cloudrec installs.
        is_ours: whether cloudrec has installed it.
        is_whole: whether its installation was completed.
        sha256: digest of the release that was fetched; empty for cloudrec's templates.
        objects: the number of its objects.
        by: a sentence on how it was recognised; empty if cloudrec has installed it.
    """

    name: str
    version: str
    newest: str
    is_ours: bool
    is_whole: bool = True
    sha256: str = ""
    objects: int = 0
    by: str = ""


def needed(target: ClusterTarget) -> list[Addon]:
    """Return the add-ons for a cluster's GPUs, cards and volumes, in the order of installation."""
    names = [
        name for name in profile_of(target.fabric, target.instance_type).addons if name not in target.built_in
    ]
    claimed = {each.resource for each in target.claims}
    names = [name for name in names if not claimed.intersection(addon_of(name).provides.resources)]
    disks = ["local-disks"] if target.local_path else []
    return [addon_of(name) for name in (*names, *disks, *(["volumes"] if target.volumes else []))]


def converge(
    kube: Kube,
    target: ClusterTarget,
    cluster: str,
    owner: str,
    report: Callable[[str], None],
    *,
    clock: Clock | None = None,
    wait_s: float | None = None,
) -> list[AddonRecord]:
    """Install the add-ons that a cluster needs, upgrade older ones, and wait until they are ready.

    Add-ons that others have installed are not changed. An add-on that is not ready in time is reported and is
    no error: nodes may still be joining.

    Args:
        kube: the cluster.
        target: the cluster's nodes and their fabric.
        cluster: the cluster's name.
        owner: the owner for the labels.
        report: receives one line for each step.
        clock: the clock for the wait.
        wait_s: the limit of the wait in seconds; 0 not to wait; None for what the add-ons need.

    Returns:
        The records of the needed add-ons that cloudrec has installed.
    """
    site = _Site(
        kube=kube, target=target, cluster=cluster, owner=owner, report=report, clock=clock or Clock()
    )
    made = [site.install(addon) for addon in needed(target)]
    records = [record for record in made if record is not None]
    site.wait(records, wait_s)
    site.renew()
    return records


def lacking(kube: Kube, target: ClusterTarget, *, clock: Clock | None = None, removed: str = "") -> list[str]:
    """Return a line for each required add-on that is absent or not ready; none if all are ready.

    Args:
        kube: the cluster.
        target: the cluster's nodes and their fabric.
        clock: the clock for readiness.
        removed: the name of an add-on that was removed just now.
    """
    problems = []
    for addon in needed(target):
        record = inventory.read(kube, addon.name)
        if record is not None and record.is_whole:
            late = waiting(kube, record.objects, clock or Clock(), 0)
            problems += [f"{addon.name}: {state.what} is not ready: {state.found}" for state in late]
        elif record is not None:
            problems.append(f"{addon.name}: its installation has not ended")
        # A kubelet advertises the devices of a plugin for a while after the plugin has ended, so the nodes
        # do not show yet that an add-on was removed.
        elif addon.name == removed or not elsewhere(kube, addon):
            problems.append(f"{addon.name} is not installed")
    return problems


def install(
    kube: Kube,
    name: str,
    target: ClusterTarget,
    *,
    cluster: str,
    owner: str,
    report: Callable[[str], None],
    sha256: str = "",
    force: bool = False,
    clock: Clock | None = None,
    wait_s: float | None = None,
) -> AddonRecord | None:
    """Install or upgrade one add-on; return its record, or None if others have installed it.

    Args:
        kube: the cluster.
        name: the add-on's name.
        target: the cluster's nodes and their fabric.
        cluster: the cluster's name.
        owner: the owner for the labels.
        report: receives one line for each step.
        sha256: digest of the release, if the table has none.
        force: take over an add-on that others have installed.
        clock: the clock for the wait.
        wait_s: the limit of the wait in seconds; 0 not to wait; None for what the add-on needs.

    Raises:
        UsageError: there is no such add-on.
        PreflightError: it cannot be fetched, its hash is wrong, or an object has another owner.
    """
    addon = addon_of(name)
    site = _Site(
        kube=kube, target=target, cluster=cluster, owner=owner, report=report, clock=clock or Clock()
    )
    record = site.install(addon, sha256=sha256, force=force)
    site.wait([record] if record else [], wait_s)
    for other in addon.then:
        site.follow(addon_of(other), force=force, patience_s=_SERVED_S if record else 0)
    return record


def install_metrics(
    kube: Kube,
    target: ClusterTarget,
    expected: Sequence[str],
    *,
    cluster: str,
    owner: str,
    report: Callable[[str], None],
    clock: Clock | None = None,
) -> None:
    """Install what serves the metrics of a cluster, and what names it to those who collect them.

    An add-on that cannot be installed is reported and is no error: runs do not need it.

    Args:
        kube: the cluster.
        target: the cluster's nodes and their fabric.
        expected: the add-ons that its metrics service needs.
        cluster: the cluster's name.
        owner: the owner for the labels.
        report: receives one line for each step.
        clock: the clock for the wait until the service's kinds are served.
    """
    site = _Site(
        kube=kube, target=target, cluster=cluster, owner=owner, report=report, clock=clock or Clock()
    )
    # An operator of Prometheus comes with its kinds. A cluster without one needs no monitors.
    found = [
        each.name
        for each in addons().values()
        if bundled.is_monitor(each) and all(kube.kinds.has(kind) for kind in each.requires)
    ]
    has_gpus = _GPUS in {*target.resources, *(each.resource for each in target.claims)}
    for name in dict.fromkeys((*expected, *found)):
        addon = addon_of(name)
        if name == _GPU_METRICS and not has_gpus:
            continue
        if bundled.is_in_namespace(addon):
            site.make_namespace()
        try:
            site.follow(addon, force=False, patience_s=_SERVED_S)
        except (PreflightError, KubeError) as error:
            report(f"{name} is not installed: {error.message}; {error.remedy}")


def remove(
    kube: Kube,
    name: str,
    *,
    report: Callable[[str], None],
    force: bool = False,
    clock: Clock | None = None,
    wait_s: float = GONE_S,
) -> tuple[inventory.ObjectReference, ...]:
    """Remove an add-on's objects that have cloudrec's labels; return those that were deleted.

    Args:
        kube: the cluster.
        name: the add-on's name.
        report: receives a line about the removal.
        force: remove it even if other objects of its kinds exist, and delete these first.
        clock: the clock for the wait until the objects are gone.
        wait_s: the limit of that wait in seconds.

    Raises:
        PreflightError: cloudrec has not installed it, other objects of its kinds exist, or an object that was
            deleted is not gone in time.
    """
    record = inventory.read(kube, name)
    if record is None:
        raise PreflightError(f"cloudrec has not installed {name} on this cluster")
    followers = addon_of(name).then if name in addons() else ()
    for other in followers:
        if inventory.read(kube, other) is not None:
            remove(kube, other, report=report, force=force, clock=clock, wait_s=wait_s)
    gone = remove_objects(kube, record, clock=clock or Clock(), report=report, force=force, wait_s=wait_s)
    inventory.forget(kube, name)
    report(f"{name} {record.version} removed: {len(gone)} objects")
    return gone


def remove_all(kube: Kube, cluster: str, *, report: Callable[[str], None]) -> list[str]:
    """Remove every add-on that cloudrec has installed for a cluster, the last one first.

    An operator stays while objects of its kinds exist, since they would be deleted with it; this is reported.

    Returns:
        The names of the add-ons that were kept.
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
    """Return the known add-ons that a cluster has, including those that others have installed."""
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
    """A cluster that add-ons are installed on, with the receiver of the report."""

    kube: Kube
    target: ClusterTarget
    cluster: str
    owner: str
    report: Callable[[str], None]
    clock: Clock

    def install(self, addon: Addon, *, sha256: str = "", force: bool = False) -> AddonRecord | None:
        """Install or upgrade one add-on; return its record, or None if others have installed it."""
        before = inventory.read(self.kube, addon.name)
        if before is None and not force and (by := elsewhere(self.kube, addon)):
            self.report(f"{addon.name} exists already ({by}) and is not changed")
            return None
        self._check(addon)
        objects, found = self._objects(addon, sha256)
        record = inventory.AddonRecord(
            name=addon.name,
            version=addon.version,
            sha256=found,
            cluster=self.cluster,
            owner=self.owner,
            objects=(),
            is_whole=False,
        )
        applied = apply_all(self.kube, record, objects, clock=self.clock, force=force)
        self.report(_summary(addon, before, len(applied.removed)))
        return applied.record

    def follow(self, addon: Addon, *, force: bool, patience_s: float) -> None:
        """Install an add-on after another, once that one's kinds are served and its webhook answers."""
        deadline = self.clock.now() + self.clock.limit(patience_s)
        while self.clock.now() < deadline:
            if all(self.kube.kinds.has(kind) for kind in addon.requires):
                try:
                    self.install(addon, force=force)
                except OverloadedError as error:  # the API server's answer while a webhook does not answer
                    self.report(f"{addon.name} is not installed yet: {error.message}")
                else:
                    return
            self.clock.sleep(_POLL_S)
        self.install(addon, force=force)

    def renew(self) -> None:
        """Install again what cloudrec has installed for the nodes that there were, if there are nodes."""
        for addon in addons().values():
            if not addon.follows_nodes or (before := inventory.read(self.kube, addon.name)) is None:
                continue
            if before.cluster != self.cluster:
                continue
            try:
                self.install(addon)
            except PreflightError as error:
                self.report(f"{addon.name} is not renewed: {error.message}")

    def wait(self, records: Sequence[AddonRecord], wait_s: float | None) -> None:
        """Wait until the objects of add-ons are ready, and report those that are not."""
        if wait_s is None:
            wait_s = max([_READY_S, *(addon_of(record.name).ready_s for record in records)])
        references = [each for record in records for each in record.objects]
        for state in waiting(self.kube, references, self.clock, wait_s) if wait_s else []:
            self.report(f"{state.what} is not ready yet: {state.found}")

    def _check(self, addon: Addon) -> None:
        for other in addon.needs:
            if inventory.read(self.kube, other) is None and not elsewhere(self.kube, addon_of(other)):
                raise PreflightError(
                    f"{addon.name} needs {other}, which is not installed",
                    remedy=f"install it first: cloudrec addons install {other}",
                )
        for kind in addon.requires:
            if not self.kube.kinds.has(kind):
                raise PreflightError(
                    f"{addon.name} needs the kind {kind}, which this cluster does not have",
                    remedy=addon.without or f"install a version of {', '.join(addon.needs)} that has it"
                    if addon.without or addon.needs
                    else "create the cluster with the feature that has it, such as multi-networking",
                )
        if addon.name == _GPU_PLUGIN and not self.target.node_selector:
            gpu_nodes.require(self.kube, addon.name)

    def _objects(self, addon: Addon, sha256: str) -> tuple[list[dict[str, Any]], str]:
        if addon.release:
            return upstream.objects_of(addon, sha256=sha256)
        labels = inventory.labels_of(addon.name, self.cluster, self.owner)
        if addon.name == _QUEUES:
            self.make_namespace()
            pools = pools_of(self.kube, self.target)
            return queue_objects(self.target, pools, cluster=self.cluster, labels=labels), ""
        made = bundled.objects_of(addon, self.target, cluster=self.cluster, labels=labels)
        if addon.name == "volumes":
            self.make_namespace()
        return made, ""

    def make_namespace(self) -> None:
        """Create the runs' namespace if there is none. It is no object of the add-on: a removal keeps it."""
        if self.kube.get("Namespace", self.target.namespace) is None:
            prepare(self.kube, self.target, self.cluster, self.owner)


def _summary(addon: Addon, before: AddonRecord | None, removed: int) -> str:
    gone = f", {removed} of its objects removed" if removed else ""
    if before is None:
        return f"{addon.name} {addon.version} installed: {addon.purpose}"
    if before.version != addon.version:
        return f"{addon.name} upgraded from {before.version} to {addon.version}{gone}"
    return f"{addon.name} {addon.version} is up to date{gone}"
