"""Write infra/grafana/*.json: the dashboards of a run, of a cluster, and of GPUs and fabrics.

    python -m scripts.dashboards

A test compares the files with what this module makes, and every metric in them with those that are exported.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FOLDER = Path(__file__).parents[1] / "infra" / "grafana"
_SCHEMA = 39  # schemaVersion of Grafana 10 and later, which older ones read as far as they know it
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One chart.

    Attributes:
        title: its title.
        queries: PromQL by legend.
        unit: Grafana's name of the unit; short for plain numbers.
        text: what it shows, for the (i) of the panel.
        kind: timeseries or stat.
    """

    title: str
    queries: Mapping[str, str]
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"


@dataclass(frozen=True, kw_only=True)
class Dashboard:
    """One dashboard.

    Attributes:
        uid: its id in URLs.
        title: its title.
        variables: label_values queries by variable.
        panels: its charts, in reading order.
    """

    uid: str
    title: str
    variables: Mapping[str, str]
    panels: Sequence[Panel] = field(default_factory=tuple)


_RUN = '{cluster=~"$cluster",run=~"$run"}'
_CLUSTER = '{cluster=~"$cluster"}'
_HOST = '{Hostname=~"$host"}'
DASHBOARDS = (
    Dashboard(
        uid="cloudrec-run",
        title="cloudrec: a run",
        variables={
            "cluster": "label_values(cloudrec_run_restarts_total, cluster)",
            "run": 'label_values(cloudrec_run_restarts_total{cluster=~"$cluster"}, run)',
        },
        panels=(
            Panel(title="Loss", queries={"{{run}}": f"cloudrec_run_loss{_RUN}"}),
            Panel(title="AUC", queries={"{{run}} {{task}}": f"cloudrec_run_eval_auc{_RUN}"}),
            Panel(
                title="Throughput",
                queries={"{{run}}": f"cloudrec_run_samples_per_second{_RUN}"},
                text="Samples a second over all ranks.",
            ),
            Panel(
                title="Progress",
                queries={"{{run}}": f"cloudrec_run_step{_RUN} / cloudrec_run_planned_steps{_RUN}"},
                unit="percentunit",
            ),
            Panel(
                title="Goodput",
                queries={"{{run}}": f"cloudrec_run_goodput_ratio{_RUN}"},
                unit="percentunit",
                text="The share of all time for work whose results were kept.",
            ),
            Panel(
                title="Time by use",
                queries={"{{run}} {{part}}": f"cloudrec_run_time_seconds_total{_RUN}"},
                unit="s",
            ),
            Panel(
                title="Age of the newest checkpoint",
                queries={"{{run}}": "time() - cloudrec_run_checkpoint_timestamp_seconds" + _RUN},
                unit="s",
            ),
            Panel(
                title="Training waits for a checkpoint",
                queries={"{{run}}": f"cloudrec_run_checkpoint_stall_seconds{_RUN}"},
                unit="s",
            ),
            Panel(
                title="Checkpoint size",
                queries={"{{run}}": f"cloudrec_run_checkpoint_size_bytes{_RUN}"},
                unit="bytes",
            ),
            Panel(
                title="Step time and its wait for data",
                queries={
                    "{{run}} step": f"cloudrec_run_step_duration_seconds{_RUN}",
                    "{{run}} data": f"cloudrec_run_data_wait_seconds{_RUN}",
                },
                unit="s",
            ),
            Panel(
                title="Restarts and notices",
                queries={
                    "{{run}} restarts": f"cloudrec_run_restarts_total{_RUN}",
                    "{{run}} notices": f"cloudrec_run_preemption_notices_total{_RUN}",
                },
            ),
            Panel(title="Values of a script", queries={"{{run}} {{name}}": f"cloudrec_run_value{_RUN}"}),
        ),
    ),
    Dashboard(
        uid="cloudrec-cluster",
        title="cloudrec: a cluster",
        variables={"cluster": "label_values(cloudrec_keeper_round_timestamp_seconds, cluster)"},
        panels=(
            Panel(
                title="Cost so far",
                queries={"{{cluster}}": f"cloudrec_cluster_cost_usd_total{_CLUSTER}"},
                unit="currencyUSD",
                kind="stat",
            ),
            Panel(
                title="Budget left",
                queries={"{{cluster}}": f"cloudrec_cluster_budget_left_usd{_CLUSTER}"},
                unit="currencyUSD",
                kind="stat",
            ),
            Panel(
                title="Time to the end",
                queries={"{{cluster}}": f"cloudrec_cluster_remaining_seconds{_CLUSTER}"},
                unit="s",
                kind="stat",
            ),
            Panel(
                title="Cost an hour",
                queries={"{{cluster}}": f"cloudrec_cluster_cost_usd_per_hour{_CLUSTER}"},
                unit="currencyUSD",
            ),
            Panel(
                title="Nodes by pool",
                queries={"{{pool}} {{capacity_type}}": f"cloudrec_cluster_nodes{_CLUSTER}"},
            ),
            Panel(title="GPUs by pool", queries={"{{pool}}": f"cloudrec_cluster_gpus{_CLUSTER}"}),
            Panel(
                title="Cost of a GPU hour",
                queries={"{{cluster}}": f"cloudrec_cluster:cost:usd_per_gpu_hour{_CLUSTER}"},
                unit="currencyUSD",
                text="By the recording rule in infra/prometheus.",
            ),
            Panel(
                title="Moves and lost nodes",
                queries={
                    "{{run}} moves": f"cloudrec_run_moves_total{_CLUSTER}",
                    "{{run}} lost": f"cloudrec_run_lost_nodes_total{_CLUSTER}",
                },
            ),
            Panel(
                title="The keeper",
                queries={
                    "since its last round": "time() - cloudrec_keeper_round_timestamp_seconds" + _CLUSTER,
                    "failed rounds": f"cloudrec_keeper_failed_rounds_total{_CLUSTER}",
                    "notifications that wait": f"cloudrec_keeper_notifications_waiting{_CLUSTER}",
                },
            ),
        ),
    ),
    Dashboard(
        uid="cloudrec-gpus",
        title="cloudrec: GPUs and fabric",
        variables={"host": "label_values(DCGM_FI_DEV_GPU_UTIL, Hostname)"},
        panels=(
            Panel(
                title="GPU utilization",
                queries={"{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_GPU_UTIL{_HOST}"},
                unit="percent",
            ),
            Panel(
                title="GPU memory",
                queries={
                    "{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_FB_USED{_HOST} / "
                    f"(DCGM_FI_DEV_FB_USED{_HOST} + DCGM_FI_DEV_FB_FREE{_HOST})"
                },
                unit="percentunit",
            ),
            Panel(
                title="Power",
                queries={"{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_POWER_USAGE{_HOST}"},
                unit="watt",
            ),
            Panel(
                title="Temperature",
                queries={"{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_GPU_TEMP{_HOST}"},
                unit="celsius",
            ),
            Panel(
                title="Errors (XID)",
                queries={"{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_XID_ERRORS{_HOST}"},
                text="The newest XID of a GPU; 0 for none.",
            ),
            Panel(
                title="Remapped rows",
                queries={
                    "{{Hostname}} {{gpu}}": f"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{_HOST}",
                    "{{Hostname}} {{gpu}} failed": f"DCGM_FI_DEV_ROW_REMAP_FAILURE{_HOST}",
                },
            ),
            Panel(
                title="Fabric: sent",
                queries={
                    "{{instance}} {{device}}": "rate(node_infiniband_port_data_transmitted_bytes_total[2m])"
                },
                unit="Bps",
                text="InfiniBand and RoCE, by node_exporter. EFA has no such counters.",
            ),
            Panel(
                title="Fabric: received",
                queries={
                    "{{instance}} {{device}}": "rate(node_infiniband_port_data_received_bytes_total[2m])"
                },
                unit="Bps",
            ),
            Panel(
                title="Fabric: links that went down",
                queries={"{{instance}} {{device}}": "increase(node_infiniband_link_downed_total[1h])"},
            ),
        ),
    ),
)


def document(board: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["cloudrec"],
        "schemaVersion": _SCHEMA,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables(board))},
        "panels": [_panel(number, panel) for number, panel in enumerate(board.panels)],
    }


def expressions(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield the PromQL of a dashboard's panels."""
    for panel in found["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def _variables(board: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    for name, query in board.variables.items():
        yield {
            "name": name,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "options": {},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def files() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{board.uid}.json": json.dumps(document(board), indent=1, sort_keys=True) + "\n"
        for board in DASHBOARDS
    }


def main() -> None:
    """Write the files."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
