"""What smoke jobs measured between the GPUs of this home's clusters, kept for later plans."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cloudrec import providers
from cloudrec.home import make_private, read_text, write_atomically
from cloudrec.planning.fit.step import MeasuredLinks
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from pathlib import Path

    from cloudrec.agent.checks.smoke_report import SmokeReport
    from cloudrec.app.context import AppContext

VERSION = 1
_FOLDER = "links"
_MOST_CHARACTERS = 100  # of a name that is shown


def keep_links(app: AppContext, report: SmokeReport, *, cluster: str, provider: str, machine: str) -> bool:
    """Keep what a smoke job measured; return whether it says something of this machine type's GPUs.

    Only a job on all GPUs of its nodes does: fewer GPUs have a larger share of the network. Nodes of a
    cluster may be of several types, so the ranks' GPUs must be of the type's model.

    Args:
        app: the context of the use case.
        report: the job's report.
        cluster: the cluster's name.
        provider: the cloud.
        machine: the machine type of the nodes.
    """
    hardware = providers.hardware(provider).get(machine)
    found = {each.operation: each.gb_s for each in report.bandwidths}
    if hardware is None:
        return False
    model = re.compile(rf"\b{re.escape(hardware.gpu)}\b")  # as in "NVIDIA H100 80GB HBM3"
    if not all(model.search(str(rank.get("device"))) for rank in report.ranks):
        return False
    if report.world_size != report.nodes * hardware.gpus or not {"all-to-all", "all-reduce"} <= found.keys():
        return False
    links = MeasuredLinks(
        all_to_all_gb_s=found["all-to-all"],
        all_reduce_gb_s=found["all-reduce"],
        nodes=report.nodes,
        cluster=cluster,
        as_of=f"{datetime.now(UTC):%Y-%m-%d}",
    )
    path = _path(app, provider, machine, across=report.nodes > 1)
    make_private(path.parent)
    write_atomically(path, json.dumps({"version": VERSION, **asdict(links)}))
    return True


def kept_links(app: AppContext, provider: str, machine: str, *, across: bool) -> MeasuredLinks | None:
    """Return the last measurement on such machines; None without one. A damaged one is reported and left out.

    Args:
        app: the context of the use case.
        provider: the cloud.
        machine: the machine type.
        across: whether the job was on several nodes.
    """
    path = _path(app, provider, machine, across=across)
    try:
        return _parsed(safe_object(read_text(path)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
        app.report(
            f"{path} is left out, because it cannot be read: {error}; `cloudrec doctor --cluster NAME "
            "--smoke` measures again"
        )
        return None


def _path(app: AppContext, provider: str, machine: str, *, across: bool) -> Path:
    where = "across" if across else "inside"
    return app.home.root / _FOLDER / f"{provider}-{machine}-{where}.json"


def _parsed(document: dict[str, Any]) -> MeasuredLinks:
    if document["version"] != VERSION:
        raise ValueError(f"version {document['version']!r}, and this cloudrec reads {VERSION}")
    rates = [float(document[name]) for name in ("all_to_all_gb_s", "all_reduce_gb_s")]
    if not all(math.isfinite(rate) and rate > 0 for rate in rates):
        raise ValueError(f"the bandwidths {rates}")
    cluster, as_of = str(document["cluster"]), str(document["as_of"])
    if not all(each.isprintable() and len(each) <= _MOST_CHARACTERS for each in (cluster, as_of)):
        raise ValueError(f"the cluster {cluster[:_MOST_CHARACTERS]!r} of {as_of[:_MOST_CHARACTERS]!r}")
    return MeasuredLinks(
        all_to_all_gb_s=rates[0],
        all_reduce_gb_s=rates[1],
        nodes=int(document["nodes"]),
        cluster=cluster,
        as_of=as_of,
    )
