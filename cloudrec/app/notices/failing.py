"""Which notifications do not arrive: by channel, since when, and why."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.local import notify
from cloudrec.notify.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cloudrec.app.context import AppContext
    from cloudrec.observe.runs import RunView

HERE = "this machine"
_RECENT_S = 7 * 86_400.0  # what failed before is history


@dataclass(frozen=True, kw_only=True)
class FailingChannel:
    """A channel whose newest notifications were not delivered.

    Attributes:
        sender: what sends: this machine, or `keeper of CLUSTER`.
        channel: webhook, slack or email.
        since: the time of the first one, in seconds since the epoch; None if the channel cannot be used.
        count: how many there are.
        why: why the newest one was not delivered.
        test: the command that sends a test.
    """

    sender: str
    channel: str
    since: float | None
    count: int
    why: str
    test: str

    @property
    def text(self) -> str:
        """The warning, with the remedy."""
        moment = datetime.fromtimestamp(self.since, UTC) if self.since is not None else None
        since = f" since {moment:%F %H:%M} UTC" if moment is not None else ""
        number = f" ({self.count} of them)" if self.count > 1 else ""
        return (
            f"warning: {self.sender} delivers no notifications by {self.channel}{since}{number}: "
            f"{self.why}\n  remedy: repair the receiver or its secret; `{self.test}` sends a test, and "
            "`cloudrec notify status` shows what waits"
        )


def failing(app: AppContext, clusters: Sequence[str], runs: Sequence[RunView]) -> list[FailingChannel]:
    """Return the channels that fail, of this machine's runs and of the keepers that answer.

    Args:
        app: the context of the use case.
        clusters: the names of the clusters that are shown and answer.
        runs: the runs that are shown.
    """
    now = app.now().timestamp()
    folders = [RunFolder(path=app.home.run(view.name)) for view in runs if view.launcher is not None]
    own = [notify.sent_of(run) for run in folders if (run.path / notify.OUTBOX).exists()]
    found = _failing(own, now, sender=HERE, test="cloudrec notify test")
    for name in clusters:
        outbox = _of_keeper(app, name)
        test = f"cloudrec notify test --cluster {name}"
        found += _failing([outbox], now, sender=f"keeper of {name}", test=test) if outbox else []
    return found


def _of_keeper(app: AppContext, name: str) -> Outbox | None:
    """Return what the keeper of a cluster sent; None if it notifies no one, or cannot be read."""
    # `status RUN` needs none of these.
    from cloudrec.app.managed.notes import keeper_notes  # noqa: PLC0415
    from cloudrec.app.records import known_clusters  # noqa: PLC0415
    from cloudrec.keeper.note import OUTBOX  # noqa: PLC0415

    for known in known_clusters(app, name=name):
        if known.cluster.notify is None:
            return None
        with suppress(CloudrecError):
            return Outbox.of(keeper_notes(app, known).get(OUTBOX, ""))
    return None


def _failing(outboxes: Iterable[Outbox], now: float, *, sender: str, test: str) -> list[FailingChannel]:
    """Return the channels whose failures are newer than their last delivery."""
    sent: dict[str, float] = {}
    failed: dict[str, list[tuple[float, str]]] = {}
    problems: dict[str, str] = {}
    for outbox in outboxes:
        for done in outbox.done:
            if done.why:
                failed.setdefault(done.channel, []).append((done.at, done.why))
            else:
                sent[done.channel] = max(sent.get(done.channel, 0.0), done.at)
        for each in outbox.waiting:
            if each.tries:
                failed.setdefault(each.channel, []).append((each.notice.at, each.why))
        problems |= {each.channel: each.why for each in outbox.problems}
    found = [
        FailingChannel(sender=sender, channel=channel, since=None, count=0, why=why, test=test)
        for channel, why in problems.items()
    ]
    for channel, rows in failed.items():
        after = max(sent.get(channel, 0.0), now - _RECENT_S)
        if recent := sorted(row for row in rows if row[0] > after):
            found.append(
                FailingChannel(
                    sender=sender,
                    channel=channel,
                    since=recent[0][0],
                    count=len(recent),
                    why=recent[-1][1],
                    test=test,
                )
            )
    return found
