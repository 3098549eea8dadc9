"""Choosing the checkpoint to publish, once or again and again while a run trains."""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import DamagedError
from trainer.checkpoint.store.base import MissingError, StoreError, open_store
from trainer.serving.publication.format import PublicationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from trainer.checkpoint.format.commit import Commit
    from trainer.checkpoint.store.base import Store
    from trainer.publishing.publisher import Publisher, PublishReport

_LOG = logging.getLogger(__name__)
_FINISHED = "finished"
_TRIES = 3  # a run may remove a checkpoint while it is read


def publish_once(publisher: Publisher, uri: str, step: int | None) -> PublishReport:
    """Publish the checkpoint of a step, or the newest intact one.

    Raises:
        CheckpointError: there is no such checkpoint, or none is intact.
    """
    store = open_store(uri)
    for tries_left in reversed(range(_TRIES)):
        commits = _commits(store)
        if not commits:
            raise CheckpointError(
                f"{store.uri}: holds no committed checkpoint (step-*/commit-*.json); give the run's "
                "checkpoint_dir, or OUTPUT_DIR/checkpoints"
            )
        if step is not None and not any(each.step == step for each in commits):
            known = ", ".join(str(each.step) for each in reversed(commits))
            raise CheckpointError(f"{store.uri}: has no checkpoint of step {step}; it has {known}")
        try:
            return _publish(publisher, store, [each for each in commits if step in (None, each.step)])
        except DamagedError as error:
            if not tries_left or _commits(store)[:1] == commits[:1]:
                raise CheckpointError(f"{error}; publish another checkpoint, with --step") from error
    raise AssertionError  # the last try returned or raised


def follow(
    publisher: Publisher,
    uri: str,
    *,
    seconds: float,
    run: str | None,
    report: Callable[[PublishReport], None],
) -> str:
    """Publish every new checkpoint until the run has finished or a signal asks to stop; return which.

    If several are committed between two looks, the newest is published: it has the changes of all.

    Args:
        publisher: where.
        uri: of the checkpoints.
        seconds: between two looks.
        run: the folder of the run's summary.json, which says that it has finished; None: the one above.
        report: is called after each publication.

    Raises:
        PublicationError: another publisher writes there, too, or what is there is damaged.
    """
    store = open_store(uri)
    folder = open_store(run or uri.rstrip("/").rpartition("/")[0] or ".")
    problem = ""
    with _stopping() as stop:
        while True:
            # Before the checkpoints are listed: what is committed before the end is then published.
            ended = _has_finished(folder)
            try:
                commits = _commits(store)
                if commits:
                    made = _publish(publisher, store, commits)
                    if made.is_new:
                        report(made)
                problem = ""
            except (PublicationError, ConfigError):
                raise
            except CheckpointError as error:  # the store may be back soon, and the next checkpoint intact
                if str(error) != problem:
                    _LOG.warning("nothing is published for now: %s", error)
                problem = str(error)
            if ended and not problem:
                return _FINISHED
            if stop.wait(seconds):
                return "stopped"


def _publish(publisher: Publisher, store: Store, commits: list[Commit]) -> PublishReport:
    """Publish the first commit that is intact, or say that the newest version is as new."""
    newest = publisher.newest()
    for place, commit in enumerate(commits):
        try:
            return publisher.publish(store, commit)
        except DamagedError as error:
            older = commits[place + 1 :]
            if not older or (newest is not None and older[0].step <= newest.step):
                raise
            _LOG.warning("the checkpoint of step %d is damaged: %s", commit.step, error)
    raise AssertionError  # there is at least one


def _commits(store: Store) -> list[Commit]:
    """Return the readable commits, newest first."""
    return [each.commit for each in reversed(catalogue.list_commits(store)) if each.commit is not None]


def _has_finished(folder: Store) -> bool:
    try:
        return safe_object(folder.read("summary.json")).get("status") == _FINISHED
    except (MissingError, StoreError, ValueError):
        return False  # not yet, or not known yet


@contextmanager
def _stopping() -> Iterator[threading.Event]:
    """Set an event at SIGTERM and SIGINT, so that a version is finished first."""
    event = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        del number, frame
        event.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
