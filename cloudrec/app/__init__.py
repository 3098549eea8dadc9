"""The use cases behind the command line, and the only place that picks a provider or a launcher."""

from __future__ import annotations

from cloudrec.app.addons import examine, install, installed, uninstall, wanted
from cloudrec.app.choosing import choose
from cloudrec.app.clusters import ClusterView, Removal, catalog, clusters, doctor, down, expired, up
from cloudrec.app.context import AppContext
from cloudrec.app.leaks import Leak, leaks, remove_leaks
from cloudrec.app.runs import fetch, run_folder, runs, stop_run
from cloudrec.app.smoke import smoke_run
from cloudrec.app.train import Launch, resume, train

__all__ = [
    "AppContext",
    "ClusterView",
    "Launch",
    "Leak",
    "Removal",
    "catalog",
    "choose",
    "clusters",
    "doctor",
    "down",
    "examine",
    "expired",
    "fetch",
    "install",
    "installed",
    "leaks",
    "remove_leaks",
    "resume",
    "run_folder",
    "runs",
    "smoke_run",
    "stop_run",
    "train",
    "uninstall",
    "up",
    "wanted",
]
