"""The use cases behind the command line, and the only place that picks a provider or a launcher.

Each is imported when it is asked for: `status` and `logs` need neither what makes clusters nor what
launches runs. No module here has the name of a use case, which it would hide once it is imported.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudrec.app.access import AccessView, access_view
    from cloudrec.app.addons import examine, install, installed, uninstall, wanted
    from cloudrec.app.choosing import choose
    from cloudrec.app.context import AppContext
    from cloudrec.app.gpu_catalog import GpuMachine, gpu_machines
    from cloudrec.app.leak_search import Leak, leaks, remove_leaks
    from cloudrec.app.lifecycle import (
        ClusterView,
        Removal,
        catalog,
        clusters,
        doctor,
        down,
        expired,
        forget,
        recorded,
        up,
    )
    from cloudrec.app.managed.view import KeeperView, keepers
    from cloudrec.app.money.blocks import block_offers
    from cloudrec.app.money.costs import costs, run_cost
    from cloudrec.app.money.kept import ClusterCost
    from cloudrec.app.notices.awaiting import await_ends
    from cloudrec.app.notices.failing import FailingChannel, failing
    from cloudrec.app.notices.sending import NotificationView, notifications, send_test
    from cloudrec.app.planning.calibration import Calibration, calibrate, kept_calibration
    from cloudrec.app.planning.kept_plan import keep_plan, kept_offer
    from cloudrec.app.planning.run_plan import OwnOffer, PlanWish, RunPlan, run_plan
    from cloudrec.app.planning.traces import read_traces, spot_plan
    from cloudrec.app.readiness import missing_of
    from cloudrec.app.run.attach import execute, forward
    from cloudrec.app.run.data_tier import DatasetWish
    from cloudrec.app.run.launch import PreparedRun, resume, train
    from cloudrec.app.run.manage import fetch, run_folder, runs, runs_of, stop_run
    from cloudrec.app.run.smoke_test import smoke_run

__all__ = [
    "AccessView",
    "AppContext",
    "Calibration",
    "ClusterCost",
    "ClusterView",
    "DatasetWish",
    "FailingChannel",
    "GpuMachine",
    "KeeperView",
    "Leak",
    "NotificationView",
    "OwnOffer",
    "PlanWish",
    "PreparedRun",
    "Removal",
    "RunPlan",
    "access_view",
    "await_ends",
    "block_offers",
    "calibrate",
    "catalog",
    "choose",
    "clusters",
    "costs",
    "doctor",
    "down",
    "examine",
    "execute",
    "expired",
    "failing",
    "fetch",
    "forget",
    "forward",
    "gpu_machines",
    "install",
    "installed",
    "keep_plan",
    "keepers",
    "kept_calibration",
    "kept_offer",
    "leaks",
    "missing_of",
    "notifications",
    "read_traces",
    "recorded",
    "remove_leaks",
    "resume",
    "run_cost",
    "run_folder",
    "run_plan",
    "runs",
    "runs_of",
    "send_test",
    "smoke_run",
    "spot_plan",
    "stop_run",
    "train",
    "uninstall",
    "up",
    "wanted",
]
_PLACES = {
    "addons": "examine install installed uninstall wanted",
    "choosing": "choose",
    "context": "AppContext",
    "access": "AccessView access_view",
    "gpu_catalog": "GpuMachine gpu_machines",
    "leak_search": "Leak leaks remove_leaks",
    "managed.view": "KeeperView keepers",
    "money.blocks": "block_offers",
    "money.costs": "costs run_cost",
    "money.kept": "ClusterCost",
    "readiness": "missing_of",
    "run.manage": "fetch run_folder runs runs_of stop_run",
    "run.smoke_test": "smoke_run",
    "notices.awaiting": "await_ends",
    "notices.failing": "FailingChannel failing",
    "notices.sending": "NotificationView notifications send_test",
    "planning.calibration": "Calibration calibrate kept_calibration",
    "planning.kept_plan": "keep_plan kept_offer",
    "planning.run_plan": "OwnOffer PlanWish RunPlan run_plan",
    "planning.traces": "read_traces spot_plan",
    "run.data_tier": "DatasetWish",
    "run.attach": "execute forward",
    "run.launch": "PreparedRun resume train",
    "lifecycle": "ClusterView Removal catalog clusters doctor down expired forget recorded up",
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import the module of a use case."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
