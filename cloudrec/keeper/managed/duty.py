"""The guard's duty in a managed cluster: one round of the keeper, if no other process makes one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.keeper.managed.keeper import RunKeeper
from cloudrec.keeper.managed.leader import Leader
from cloudrec.keeper.managed.record import MANAGED, ManagedRecord
from cloudrec.keeper.managed.runs import managed_runs
from cloudrec.kubernetes.client.errors import KubeError
from cloudrec.kubernetes.manifests.guard import NAME
from cloudrec.providers.base.facts import facts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudrec.keeper.managed.sharing import TurnKeeper
    from cloudrec.keeper.meter import Tariff
    from cloudrec.kubernetes.client.client import Kube
    from cloudrec.providers.base.protocol import SizesPools
    from cloudrec.spec.models import ClusterSpec


def manage(
    kube: Kube,
    namespace: str,
    cluster: ClusterSpec,
    *,
    pool_label: str,
    tariffs: Sequence[Tariff],
    sizer: Callable[[ClusterSpec], SizesPools | None],
    identity: str,
    turns: TurnKeeper | None = None,
    report: Callable[[str], None],
) -> None:
    """Give the runs of a managed cluster their nodes. An error is reported; the next round does the rest.

    Args:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs and the guard.
        cluster: the cluster.
        pool_label: the label by which the cloud names a node's pool.
        tariffs: the prices of its pools.
        sizer: returns what sizes the pools; None if the provider cannot.
        identity: the name of this process, unique in the cluster.
        turns: the cluster's part in runs of several clusters; None if their storage is not known.
        report: receives a line for each change.
    """
    leader = Leader(kube=kube, namespace=namespace, identity=identity)
    try:
        pools = sizer(cluster)
        if pools is None or not leader.leads():
            report("another keeper is at work" if pools is not None else "the pools cannot be sized")
            return
    except CloudrecError as error:
        report(f"the runs' nodes stay as they are: {error.message}")
        return
    try:
        # Read only now: another keeper may have written it before it gave the lease back.
        found = kube.get("ConfigMap", NAME, namespace=namespace) or {}
        facts = facts_of(cluster.provider)
        RunKeeper(
            kube=kube,
            namespace=namespace,
            pool_label=pool_label,
            tariffs=tariffs,
            unhealthy=facts.unhealthy if facts is not None else {},
            most_nodes=cluster.nodes,
            notice_s=facts.notice.seconds if facts is not None and facts.notice else 0.0,
            resize=partial(pools.resize, cluster),
            sizes=partial(pools.pools, cluster),
            keep=partial(_keep, kube, namespace),
            report=report,
            turns=turns,
        ).round(ManagedRecord.of((found.get("data") or {}).get(MANAGED, "")))
    except CloudrecError as error:
        report(f"the runs' nodes stay as they are: {error.message}")
    finally:
        _give_back(leader, report)


def forget_nodes(kube: Kube, namespace: str, *, identity: str, report: Callable[[str], None]) -> None:
    """Write after the cluster's end that no run has nodes. An error is reported; the next round repeats it.

    The arguments are those of `manage`.
    """
    leader = Leader(kube=kube, namespace=namespace, identity=identity)
    try:
        if not leader.leads():
            return
    except CloudrecError as error:
        report(f"what the runs have is not written: {error.message}")
        return
    try:
        found = kube.get("ConfigMap", NAME, namespace=namespace) or {}
        record = ManagedRecord.of((found.get("data") or {}).get(MANAGED, ""))
        ended = record.ended(kube.now_s())
        if ended is not record:
            _keep(kube, namespace, ended)
    except CloudrecError as error:
        report(f"what the runs have is not written: {error.message}")
    finally:
        _give_back(leader, report)


def stop_shared(kube: Kube, namespace: str, turns: TurnKeeper, now: float) -> None:
    """Write of each run that this cluster has that it is stopped: no other cluster takes it.

    Args:
        kube: a client of the cluster's API server.
        namespace: the namespace of the runs.
        turns: the cluster's part in runs of several clusters.
        now: the time, in seconds since the epoch.
    """
    for run in managed_runs(kube, namespace):
        if run.is_shared:
            turn = turns.newest(run)
            if turn is not None and turns.has(run, turn):
                turns.close(run, turn, now)


def _keep(kube: Kube, namespace: str, record: ManagedRecord) -> None:
    """Write the record; KubeError stops the round, since a change that it does not have could be lost."""
    kube.patch("ConfigMap", NAME, {"data": {MANAGED: record.to_json()}}, namespace=namespace)


def _give_back(leader: Leader, report: Callable[[str], None]) -> None:
    """Give the lease back; after an error the next keeper waits until it ends."""
    try:
        leader.release()
    except KubeError as error:
        report(f"the lease is kept: {error.message}")
