"""The use cases of notifications: send a test, from here or by a cluster's keeper, and show what was sent."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cloudrec.app.notices.references import whole
from cloudrec.app.records import known_clusters
from cloudrec.errors import CloudrecError, PreflightError, SpecError, UsageError
from cloudrec.home import read_text
from cloudrec.keeper.note import ASKED, NAME, OUTBOX
from cloudrec.kubernetes.client.client import Kube
from cloudrec.kubernetes.client.errors import DeniedError
from cloudrec.launchers.local.notify import OUTBOX as RUNS_OUTBOX
from cloudrec.notify.channels import channels_of
from cloudrec.notify.notice import TEST, Notification
from cloudrec.notify.outbox import Outbox
from cloudrec.observe.runs import newest_folders
from cloudrec.providers.base.access import KubernetesAccess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.kubernetes.client.target import ClusterTarget
    from cloudrec.spec.models import ClusterSpec, NotifySpec

SENT, WAITING, GIVEN_UP = "sent", "waiting", "given up"
_KEEPER_S = 300.0  # two rounds, and the attempts of one
_POLL_S = 2.0


@dataclass(frozen=True, kw_only=True)
class NotificationView:
    """One delivery of one notification.

    Attributes:
        sender: what sent it: a run, `keeper of CLUSTER`, or this machine.
        event: its kind.
        run: the run that it is about; empty for none.
        channel: webhook, slack or email.
        state: sent, waiting or given up.
        tries: the attempts.
        why: why it was not delivered; empty if it was.
    """

    sender: str
    event: str
    run: str
    channel: str
    state: str
    tries: int
    why: str = ""


def send_test(
    app: AppContext, notify: NotifySpec, cluster: ClusterSpec | None = None
) -> Sequence[NotificationView]:
    """Send a test to all receivers, and return how that went.

    Args:
        app: the context of the use case.
        notify: who is notified; used without a cluster.
        cluster: the cluster whose keeper sends; None to send from this machine.

    Raises:
        SpecError: no one is to be notified.
        PreflightError: the cluster has no keeper, or a Secret is missing.
    """
    if cluster is None:
        return _send_here(app, notify)
    with _keeper(app, cluster) as (kube, target):
        if cluster.notify is None:
            raise SpecError(
                f"the keeper of cluster {cluster.title!r} notifies no one",
                remedy="write `notify` into cloudrec.yaml, and run `cloudrec up` again",
            )
        _check_secrets(kube, target, cluster.notify)
        token = secrets.token_hex(4)
        change = {"data": {ASKED: token}}
        kube.patch("ConfigMap", NAME, change, namespace=target.namespace)
        app.report("waiting for the keeper's next round")
        limit = app.clock.now() + _KEEPER_S
        while True:
            found = _rows_of(cluster, _outbox(kube, target), key=f"test:{token}")
            if found and all(each.state != WAITING or each.why for each in found):
                return found
            if app.clock.now() > limit:
                raise PreflightError(
                    f"the keeper of cluster {cluster.title!r} sent nothing in {_KEEPER_S:.0f} s",
                    remedy="`cloudrec doctor --cluster NAME` shows whether it runs; `cloudrec up` updates it",
                )
            app.clock.sleep(_POLL_S)


def notifications(app: AppContext, name: str | None = None) -> Sequence[NotificationView]:
    """Return what was sent, and what waits, of all runs of this machine and of all clusters, or of one.

    Raises:
        UsageError: there is neither a cluster nor a run of this name.
    """
    found: list[NotificationView] = []
    runs = [*newest_folders(app.home.runs)] if app.home.runs.is_dir() else []
    clusters = [*known_clusters(app, name=name)]
    if name is not None and not clusters and all(run.name != name for run in runs):
        raise UsageError(
            f"there is no cluster or run {name!r}", remedy="`cloudrec status` lists all clusters and runs"
        )
    for run in runs:
        path = run.path / RUNS_OUTBOX
        if name in (None, run.name) and path.exists():
            try:
                outbox = Outbox.of(read_text(path))
            except (OSError, UnicodeDecodeError):
                outbox = None
            if outbox is None:
                app.report(f"what run {run.name} sent is not known: {path} is damaged")
                continue
            found += _rows(f"run {run.name}", outbox)
    for known in clusters:
        if known.cluster.notify is None:
            continue
        try:
            with _keeper(app, known.cluster) as (kube, target):
                found += _rows_of(known.cluster, _outbox(kube, target))
        except CloudrecError as error:
            app.report(f"the keeper of {known.record.name} cannot be read: {error.message}")
    return found


def _send_here(app: AppContext, notify: NotifySpec) -> list[NotificationView]:
    if not notify.is_used:
        raise SpecError(
            "notify names no one",
            remedy="write notify.webhook, notify.slack or notify.email into cloudrec.yaml",
        )
    values = {key: app.environment.get(name, "") for key, name in notify.secrets.items()}
    channels, problems = channels_of(notify, values)
    text = "This is a test. This machine can reach you."
    notice = Notification(key=f"test:{secrets.token_hex(4)}", event=TEST, at=app.now().timestamp(), text=text)
    found = [
        _row("this machine", channel=each.channel, state=GIVEN_UP, tries=0, why=each.why) for each in problems
    ]
    for channel in channels:
        app.report(f"sending a test: {channel.name}")
        refusal = channel.send(notice)
        state = SENT if refusal is None else GIVEN_UP
        why = refusal.why if refusal is not None else ""
        found.append(_row("this machine", channel=channel.name, state=state, tries=1, why=why))
    return found


def _row(sender: str, *, channel: str, state: str, tries: int, why: str) -> NotificationView:
    return NotificationView(
        sender=sender, event=TEST, run="", channel=channel, state=state, tries=tries, why=why
    )


@contextmanager
def _keeper(app: AppContext, cluster: ClusterSpec) -> Iterator[tuple[Kube, ClusterTarget]]:
    access = app.provider(cluster.provider).access(cluster)
    if not isinstance(access, KubernetesAccess):
        raise PreflightError(
            f"cluster {cluster.title!r} has no keeper: it is not on Kubernetes",
            remedy="leave --cluster out to send from this machine",
        )
    with Kube.connect(access.target) as kube:
        yield kube, access.target


def _check_secrets(kube: Kube, target: ClusterTarget, notify: NotifySpec) -> None:
    """Raise PreflightError if a Secret or its key does not exist, as far as this user may look."""
    for key, reference in notify.secrets.items():
        name, _, part = whole(reference).rpartition("/")
        try:
            found = kube.get("Secret", name, namespace=target.namespace)
        except DeniedError:
            return
        if part not in ((found or {}).get("data") or {}):
            lacks = f"no key {part!r}" if found else "no such Secret"
            raise PreflightError(
                f"notify.{key} names the Secret {name!r} of namespace {target.namespace!r}: {lacks}",
                remedy=f"kubectl create secret generic {name} --namespace {target.namespace} "
                f"--from-env-file=FILE, where FILE has the line {part}=VALUE; the keeper's next pod reads it",
            )


def _outbox(kube: Kube, target: ClusterTarget) -> Outbox:
    found = kube.get("ConfigMap", NAME, namespace=target.namespace) or {}
    return Outbox.of((found.get("data") or {}).get(OUTBOX, "")) or Outbox()


def _rows_of(cluster: ClusterSpec, outbox: Outbox, *, key: str | None = None) -> list[NotificationView]:
    return _rows(f"keeper of {cluster.title}", outbox, key=key)


def _rows(sender: str, outbox: Outbox, *, key: str | None = None) -> list[NotificationView]:
    rows = [
        NotificationView(
            sender=sender,
            event=each.event,
            run=each.run,
            channel=each.channel,
            state=GIVEN_UP if each.why else SENT,
            tries=each.tries,
            why=each.why,
        )
        for each in outbox.done
        if key in (None, each.key)
    ]
    rows += [
        NotificationView(
            sender=sender,
            event=each.notice.event,
            run=each.notice.run,
            channel=each.channel,
            state=WAITING,
            tries=each.tries,
            why=each.why,
        )
        for each in outbox.waiting
        if key in (None, each.notice.key)
    ]
    if key is None or key in outbox.known:
        rows += [
            _row(sender, channel=each.channel, state=GIVEN_UP, tries=0, why=each.why)
            for each in outbox.problems
        ]
    return rows
