"""Who is notified how a run ends, and what at its launch speaks against it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cloudrec.errors import SpecError
from cloudrec.providers.base.facts import facts_of

if TYPE_CHECKING:
    from cloudrec.app.context import AppContext
    from cloudrec.launchers.base.protocol import Launcher
    from cloudrec.spec.load import Loaded
    from cloudrec.spec.models import ClusterSpec

_NO_ADDONS = "none"
_MANAGED = "managed"
_LOCAL = "local"  # the launcher whose supervisor sends


def check_notified(cluster: ClusterSpec) -> None:
    """Raise SpecError for notifications or metrics that nothing would send or collect."""
    facts = facts_of(cluster.provider)
    if cluster.metrics == _MANAGED and (facts is None or not facts.metrics_agent):
        raise SpecError(
            f"cluster.metrics is {_MANAGED}, but cloudrec switches on no metrics service of provider "
            f"{cluster.provider!r}",
            remedy="use cluster.metrics: prometheus",
        )
    if cluster.addons != _NO_ADDONS:
        return
    for name, is_wanted in (("notify", cluster.notify), ("cluster.metrics", cluster.metrics != "off")):
        if is_wanted:
            raise SpecError(
                f"{name} needs the keeper, which cluster.addons: none leaves out",
                remedy=f"leave {name} or cluster.addons out",
            )


def report_charges(app: AppContext, cluster: ClusterSpec) -> None:
    """Report that a service is charged for, whose price depends on its use."""
    facts = facts_of(cluster.provider)
    if cluster.metrics == _MANAGED and facts is not None:
        app.report(
            f"note: {facts.metrics_agent} charges by use, which the plan and the budget do not contain"
        )


def notify_of(loaded: Loaded, launcher: Launcher) -> dict[str, Any]:
    """Return what a run's spec keeps of the section `notify`; nothing where the keeper sends."""
    notify = loaded.spec.notify
    if not notify.is_used or not _is_sent_here(launcher):
        return {}
    return notify.model_dump(mode="json", exclude_none=True)


def _is_sent_here(launcher: Launcher) -> bool:
    """Return whether this machine sends: for its own runs, and for engines whose nodes no keeper watches."""
    return launcher.name == _LOCAL or not launcher.nodes_of_cluster


def warn_of_silence(app: AppContext, loaded: Loaded, cluster: ClusterSpec, launcher: Launcher) -> None:
    """Report why notifications that are asked for will not be sent; the run is launched even so."""
    notify = loaded.spec.notify
    if not notify.is_used:
        return
    if _is_sent_here(launcher):
        if launcher.name != _LOCAL:
            app.report("note: this machine sends the end of the run, while it is on")
        for key, reference in notify.secrets.items():
            if not app.environment.get(reference):
                app.report(f"warning: notify.{key}: the variable {reference} is not set here")
    elif cluster.notify is None:
        app.report("warning: the cluster's keeper sends no notifications yet: run `cloudrec up` again")
