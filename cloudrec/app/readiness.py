"""What a cluster lacks before runs can use it, and whether its Kubernetes API answers from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cloudrec.engine.journal import Missing
from cloudrec.errors import CloudrecError
from cloudrec.kubernetes.client.errors import ApiUnreachableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.providers.base.protocol import ClosedApi
    from cloudrec.spec.models import ClusterSpec

ADDONS, GUARD = "add-ons", "guard"  # what may be missing
_ONCE_S = 0.001  # too short for the client's own retries
BRIEFLY_S = 5.0  # from inside its network, an API answers sooner


def answers(target: ClusterTarget, *, wait_s: float = BRIEFLY_S) -> bool:
    """Return whether a cluster's Kubernetes API answers one attempt from here within some seconds."""
    from cloudrec.kubernetes.client.client import Kube  # noqa: PLC0415 - other clusters need no client

    try:
        with Kube.connect(target, patience_s=_ONCE_S, connect_s=wait_s, read_s=wait_s) as kube:
            kube.version()
    except CloudrecError:
        return False
    return True


def not_yet(cluster: ClusterSpec) -> tuple[Missing, ...]:
    """Return what a cluster lacks until `up` has ended: a killed one leaves it so."""
    return (
        Missing(
            what=ADDONS,
            reason="`up` did not finish: it installs add-ons after the nodes have joined",
            remedy=f"run the same `cloudrec up {cluster.provider}` again",
        ),
    )


def lacks_addons(error: CloudrecError, cluster: ClusterSpec, closed: ClosedApi | None) -> Missing:
    """Return what it means that the add-ons could not be installed."""
    return Missing(what=ADDONS, reason=error.message, remedy=_remedy(error, cluster, closed))


def still_lacks(problems: Sequence[str], cluster: ClusterSpec) -> list[Missing]:
    """Return the add-ons that are absent or not ready as one missing thing; nothing if all are ready."""
    if not problems:
        return []
    remedy = (
        f"`cloudrec doctor --cluster {cluster.title}` checks the nodes; once they are ready, "
        f"`cloudrec addons install --cluster {cluster.title}` checks the add-ons again"
    )
    return [Missing(what=ADDONS, reason="; ".join(problems), remedy=remedy)]


def lacks_guard(error: CloudrecError, cluster: ClusterSpec, closed: ClosedApi | None) -> Missing:
    """Return what it means that the guard could not be installed."""
    reason = f"the cluster has no guard, which {_duty(cluster)}: {error.message}"
    return Missing(what=GUARD, reason=reason, remedy=_remedy(error, cluster, closed))


def guard_not_ready(cluster: ClusterSpec, why: str) -> Missing:
    """Return what it means that the guard is installed and does not run."""
    return Missing(
        what=GUARD,
        reason=f"the guard, which {_duty(cluster)}, does not run: {why}",
        remedy=f"`cloudrec addons install --cluster {cluster.title}` tries again. If its pod reaches no "
        "package index, set cluster.package_index to a mirror, or push an image: `cloudrec image build && "
        f"cloudrec image push --cluster {cluster.title}`",
    )


def _duty(cluster: ClusterSpec) -> str:
    if cluster.expires is None:
        return "meters the cost and ends the pods of dead nodes"
    return f"removes the GPU nodes at {cluster.expires}"


def missing_of(app: AppContext, title: str) -> Sequence[Missing]:
    """Return what a cluster lacks, as the journal has it."""
    return next((record.missing for record in app.journal.clusters() if record.name == title), ())


def report_missing(app: AppContext, cluster: ClusterSpec) -> None:
    """Say what a cluster lacks, before it is used."""
    for each in missing_of(app, cluster.title):
        app.report(f"cluster {cluster.title!r} is NOT READY: {each.what}: {each.reason}")
        app.report(f"remedy: {each.remedy}")


def update_missing(app: AppContext, title: str, what: str, missing: Sequence[Missing]) -> None:
    """Replace what the journal says of one thing that a cluster lacks; of nothing, where it is there."""
    others = [each for each in missing_of(app, title) if each.what != what]
    app.journal.set_missing(title, [*missing, *others])


def _remedy(error: CloudrecError, cluster: ClusterSpec, closed: ClosedApi | None) -> str:
    again = f"run the same `cloudrec up {cluster.provider}` again"
    inside = f"from a machine inside its network: `cloudrec addons install --cluster {cluster.title}`"
    if not isinstance(error, ApiUnreachableError):
        return f"{error.remedy}; then {again}" if error.remedy else again
    if closed is None:
        return f"{error.remedy or 'check that this machine can reach it'}; then {again}"
    if closed.can_change:
        admit = f"`cloudrec access auto --cluster {cluster.title}` admits this machine"
        return f"{admit}, then {again}; or {inside}"
    return (
        f"{inside}; the API can be made public only at creation: `cloudrec down --cluster "
        f"{cluster.title}`, then `cloudrec up` with --access auto"
    )
