"""The metrics of a cluster that its keeper serves for Prometheus."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.keeper.meter import rate
from cloudrec.keeper.notices.detect import count_of
from cloudrec.observe.prometheus.server import EVERYWHERE, MetricsServer
from cloudrec.observe.prometheus.text import Exposition, Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cloudrec.keeper.ends import Metered
    from cloudrec.keeper.meter import LiveNode
    from cloudrec.keeper.note import Note
    from cloudrec.keeper.notices.detect import ClusterSight
    from cloudrec.notify.outbox import Outbox

PORT_VARIABLE = "CLOUDREC_METRICS_PORT"
NODES = Metric(name="cloudrec_cluster_nodes", kind="gauge", text="Nodes that exist, by pool.")
GPUS = Metric(name="cloudrec_cluster_gpus", kind="gauge", text="GPUs of the nodes that exist, by pool.")
HOURLY = Metric(
    name="cloudrec_cluster_cost_usd_per_hour",
    kind="gauge",
    text="What the cluster costs now, in USD an hour.",
)
SPENT = Metric(
    name="cloudrec_cluster_cost_usd_total", kind="counter", text="What the cluster has cost so far, in USD."
)
BUDGET = Metric(
    name="cloudrec_cluster_budget_usd", kind="gauge", text="The most that the cluster may cost, in USD."
)
LEFT = Metric(
    name="cloudrec_cluster_budget_left_usd", kind="gauge", text="What is left of the budget, in USD."
)
END = Metric(
    name="cloudrec_cluster_end_timestamp_seconds",
    kind="gauge",
    text="The cluster's end, in seconds since the epoch.",
)
REMAINING = Metric(
    name="cloudrec_cluster_remaining_seconds", kind="gauge", text="Seconds to the cluster's end; 0 after it."
)
MOVES = Metric(
    name="cloudrec_run_moves_total", kind="counter", text="How often the run was moved to another pool."
)
PREEMPTIONS = Metric(
    name="cloudrec_run_lost_nodes_total", kind="counter", text="Nodes that the cloud took from the run."
)
ROUND = Metric(
    name="cloudrec_keeper_round_timestamp_seconds",
    kind="gauge",
    text="The keeper's last complete round, in seconds since the epoch.",
)
FAILED = Metric(
    name="cloudrec_keeper_failed_rounds_total",
    kind="counter",
    text="Rounds that ended with an error since this keeper's process began.",
)
WAITING = Metric(
    name="cloudrec_keeper_notifications_waiting",
    kind="gauge",
    text="Notifications that were not delivered yet, by channel.",
)
METRICS = (
    NODES,
    GPUS,
    HOURLY,
    SPENT,
    BUDGET,
    LEFT,
    END,
    REMAINING,
    MOVES,
    PREEMPTIONS,
    ROUND,
    FAILED,
    WAITING,
)


class KeeperGauges:
    """What the last round has seen, as a page of metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._page = ""
        self._cluster = ""
        self._failures = 0

    def see(
        self,
        note: Note,
        sight: ClusterSight,
        metered: Metered | None,
        nodes: Sequence[LiveNode] | None,
        outbox: Outbox | None,
    ) -> None:
        """Replace the page by what a round has seen; what is not known is left out."""
        page = Exposition(labels={"cluster": sight.cluster})
        if nodes is not None:
            _add_nodes(page, note, nodes)
            page.add(HOURLY, rate(nodes, note.tariffs))
        if metered is not None:
            page.add(SPENT, metered.spent_usd)
        if sight.budget_usd is not None:
            page.add(BUDGET, sight.budget_usd)
            page.add(LEFT, None if metered is None else max(sight.budget_usd - metered.spent_usd, 0.0))
        page.add(END, sight.end)
        page.add(REMAINING, None if sight.end is None else max(sight.end - sight.now, 0.0))
        page.add(ROUND, sight.now)
        if outbox is not None:
            counts = count_of(outbox)
            for metric, kind in ((MOVES, "moves"), (PREEMPTIONS, "preemptions")):
                for run, count in counts[kind].items():
                    page.add(metric, count, run=run)
            for channel, count in Counter(each.channel for each in outbox.waiting).items():
                page.add(WAITING, count, channel=channel)
        with self._lock:
            self._cluster, self._page = sight.cluster, page.text()

    def failed(self) -> None:
        """Count a round that ended with an error."""
        with self._lock:
            self._failures += 1

    def text(self) -> str:
        """Return the page."""
        with self._lock:
            own = Exposition(labels={"cluster": self._cluster})
            own.add(FAILED, self._failures)
            return self._page + own.text()


def serve(environment: Mapping[str, str]) -> KeeperGauges | None:
    """Serve the metrics if the keeper's settings have a port; a port in use is reported, and no error."""
    port = environment.get(PORT_VARIABLE, "")
    if not port.isdecimal():
        return None
    gauges = KeeperGauges()
    try:
        MetricsServer(int(port), address=EVERYWHERE, page=gauges.text).start()
    except CloudrecError as error:
        print(f"warning: {error.message}", flush=True)
    return gauges


def _add_nodes(page: Exposition, note: Note, nodes: Sequence[LiveNode]) -> None:
    counts = Counter(node.pool for node in nodes)
    tariffs = {tariff.pool: tariff for tariff in note.tariffs if tariff.pool}
    for pool in dict.fromkeys([*tariffs, *counts]):
        tariff = tariffs.get(pool)
        labels = {"pool": pool}
        if tariff is not None:
            labels |= {"instance_type": tariff.instance_type, "capacity_type": tariff.capacity}
        page.add(NODES, counts[pool], **labels)
        if tariff is not None:
            page.add(GPUS, counts[pool] * tariff.gpus, **labels)
