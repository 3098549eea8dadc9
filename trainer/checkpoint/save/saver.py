"""Collective saves: one at a time, in this process or in the background, until committed or failed."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from trainer.base.errors import CheckpointError, SaveError
from trainer.checkpoint.format import catalogue
from trainer.checkpoint.format.commit import ManifestReference
from trainer.checkpoint.format.frames import frames
from trainer.checkpoint.format.layer import write_layer
from trainer.checkpoint.history import Written
from trainer.checkpoint.save.committing import commit_layer, prune_after
from trainer.checkpoint.save.saves import CheckpointReport
from trainer.checkpoint.store.owner import FencedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.history import History
    from trainer.checkpoint.save.background import JobResult
    from trainer.checkpoint.save.committing import CommitPlan
    from trainer.checkpoint.save.freezing import Freezer
    from trainer.checkpoint.save.planner import SavePlanner
    from trainer.checkpoint.save.saves import Save, SavingOptions, Wanted
    from trainer.checkpoint.store.base import Store

_LOG = logging.getLogger(__name__)
_TRIES = 3  # of a save whose writer dies
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.05
_BUSY, _DONE, _FAILED, _LOST = range(4)


class Saver:
    """Saves to one store; every method but `close` is collective."""

    def __init__(
        self,
        ranks: Ranks,
        store: Store,
        history: History,
        options: SavingOptions,
        *,
        planner: SavePlanner,
        freezer: Freezer,
    ) -> None:
        self._ranks = ranks
        self._store = store
        self._history = history
        self._options = options
        self._planner = planner
        self._freezer = freezer
        self._save: Save | None = None
        self._lost = 0  # saves in a row whose writer died
        self._reports: list[CheckpointReport] = []

    @property
    def is_saving(self) -> bool:
        """Whether a save is in progress, the same on all ranks."""
        return self._save is not None

    def save(self, wanted: Wanted, *, wait: bool) -> CheckpointReport | None:
        """See Checkpointer."""
        with _as_save_errors():
            self._settle(wait=True)
            while (report := self._report_of(wanted)) is None:
                save = self._planner.begin(wanted)
                if not self._options.in_background:
                    return self._write_here(save)
                self._save = save
                self._freezer.submit(save, wanted.state)
                save.stall_s = time.perf_counter() - wanted.started
                if not wait:
                    return None
                self._settle(wait=True)
            return report

    def poll(self, *, wait: bool) -> list[CheckpointReport]:
        """See Checkpointer."""
        with _as_save_errors():
            self._settle(wait=wait)
        reports, self._reports = self._reports, []
        return reports

    def close(self) -> None:
        """Give up a save that is in progress."""
        if self._save is not None and self._save.tables is not None:
            self._save.tables.close()
        self._freezer.close()
        self._save = None

    def _report_of(self, wanted: Wanted) -> CheckpointReport | None:
        """Return the report of a committed step, for a caller that waited; None if it is not committed."""
        size = self._history.size_of(wanted.step)
        if size is None:
            return None
        waited_s = time.perf_counter() - wanted.started
        if self._reports and self._reports[-1].step == wanted.step:
            report = self._reports.pop()
            return replace(report, seconds=max(report.seconds, waited_s))
        return CheckpointReport(wanted.step, waited_s, size)

    def _write_here(self, save: Save) -> CheckpointReport:
        """Write in this process, while the loop waits."""
        if self._store.near is not None:
            self._store.near.prune(save.needed)
        try:
            stem = save.id.stem(save.step, self._ranks.rank)
            quantization = self._options.quantization
            sent = chain(frames(save.groups), () if save.tables is None else save.tables.frames())
            self._ranks.each(save.problem, lambda: write_layer(self._store, stem, sent, quantization))
            written = self._ranks.first(save.problem, lambda: self._commit(save.plan))
        except FencedError:
            self._clear(save)
            raise
        except CheckpointError:
            found = self._find(save)
            if found is None:
                raise
            written = found
        self._finish(save, written)
        return replace(self._reports.pop(), seconds=time.perf_counter() - save.started)

    def _commit(self, plan: CommitPlan | None) -> Written:
        assert plan is not None  # noqa: S101 - for the type checker: only rank 0 commits
        commit = commit_layer(self._store, plan, _not_shared)
        return Written(commit.layers[-1], prune_after(self._store, plan))

    def _settle(self, *, wait: bool) -> None:
        """Finish the save in progress, on all ranks; without `wait`, only if its outcome is known already."""
        pause = _SHORTEST_WAIT_S
        while (save := self._save) is not None:
            codes = self._ranks.gather_numbers(self._code(save))
            if _FAILED in codes:
                self._fail(save)
            elif _LOST in codes:
                self._recover(save)
            elif all(code == _DONE for code in codes):
                self._finish(save, _read_answer(self._ranks.gather(save.answer)[0]))
            if not wait:
                return
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_WAIT_S)

    def _code(self, save: Save) -> int:
        if save.answer is None:
            save.answer = self._freezer.answer()
        if save.answer is None:
            return _BUSY
        if save.answer.lost:
            return _LOST
        return _FAILED if save.answer.error is not None else _DONE

    def _fail(self, save: Save) -> None:
        """Raise on all ranks what failed on one, unless the save is committed."""
        answer = save.answer
        fenced = any(self._ranks.gather(answer is not None and answer.fenced))
        written = None if fenced else self._find(save)
        if written is not None:
            self._finish(save, written)
            return
        if fenced:
            self._clear(save)

        def raise_failure() -> None:
            if answer is not None and answer.error is not None:
                raise (FencedError if answer.fenced else CheckpointError)(answer.error)

        self._ranks.together(save.problem, raise_failure)

    def _recover(self, save: Save) -> None:
        """Handle a process's death during a save: it may be committed anyway; if not, it is repeated."""
        written = self._find(save)
        if written is not None:
            self._finish(save, written)
            return
        self._lost += 1
        if self._lost >= _TRIES:
            raise CheckpointError(
                f"{save.problem}: the process that writes died {self._lost} times in a row; look for what "
                "kills it (memory that runs out, for instance), or set checkpoint_async to false"
            )
        if self._ranks.rank == 0:
            _LOG.warning("%s: the process that wrote it died; another takes over", save.problem)

    def _find(self, save: Save) -> Written | None:
        """Return what a save without a good answer has committed; if nothing, abort it and remove its files.

        The answer to the last request may be lost, so only the store knows. If it cannot be asked now, the
        files stay: a commit may name them. The next save that succeeds removes those that none names.
        """

        def ask() -> tuple[bool, Written | None]:
            try:
                return True, self._history.find(save.step, save.id)
            except CheckpointError:
                return False, None

        known, written = self._ranks.first(save.problem, ask)
        if written is None:
            self._clear(save, remove=known)
        return written

    def _clear(self, save: Save, *, remove: bool = True) -> None:
        """Abort a save; with `remove`, also remove its files."""
        self.close()
        if remove and self._ranks.rank == 0:
            catalogue.remove_save(self._store, save.step, save.id)

    def _finish(self, save: Save, written: Written) -> None:
        """Record a committed save, so that the next one builds upon it."""
        self._save = None
        self._lost = 0
        if self._options.in_background:
            self._freezer.prepare(save)
        for intervals, cut in save.cuts:
            intervals.commit(cut, base=save.kind == "full")
        self._history.add(save.step, written, above=save.above)
        seconds = time.perf_counter() - save.started
        self._reports.append(
            CheckpointReport(
                save.step, save.stall_in_all_s, written.bytes, seconds, save.kind, written.fallback
            )
        )


@contextmanager
def _as_save_errors() -> Iterator[None]:
    """Raise a failure as a SaveError: a later save may succeed, unless this run is fenced."""
    try:
        yield
    except (FencedError, SaveError):
        raise
    except CheckpointError as error:
        raise SaveError(str(error)) from error


def _read_answer(answer: JobResult | None) -> Written:
    """Return the committed layer and fallback from the answer of rank 0's writer."""
    values: Any = answer.values if answer is not None else {}
    known = values.get("fallback")
    return Written(
        tuple(ManifestReference(*row) for row in values["layer"]),
        None if known is None else catalogue.Fallback(**known),
    )


def _not_shared(name: str) -> None:
    raise CheckpointError(
        f"rank 0 does not find {name}, which another rank wrote; checkpoint_dir must be a folder that all "
        "nodes share"
    )
