"""Saving and loading by all ranks together."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from functools import reduce
from itertools import chain as joined
from typing import TYPE_CHECKING, Any, Self, TypeVar

from trainer.checkpoint import catalogue
from trainer.checkpoint.agreement import Ranks
from trainer.checkpoint.background import Answer, BackgroundWriter
from trainer.checkpoint.commit import DamagedError, Reference, SaveId
from trainer.checkpoint.committing import CommitPlan, commit_layer, prune_after
from trainer.checkpoint.frames import frames
from trainer.checkpoint.layer import write_layer
from trainer.checkpoint.loading import Target, intervals_of, load_checked, load_trusted, unusable
from trainer.checkpoint.lock import DirectoryLock
from trainer.checkpoint.owner import FencedError, claim
from trainer.checkpoint.policy import Kind, Sizes, is_worth_it, measure, plan_kind
from trainer.checkpoint.runs import verify
from trainer.checkpoint.saves import Chain, CheckpointReport, Save, SavingOptions, Wanted, problem_of
from trainer.checkpoint.snapshot import Since, Touched, find_touched, groups_of, is_frozen_by_fork
from trainer.checkpoint.staging import Staging
from trainer.checkpoint.store import open_store
from trainer.errors import CheckpointError
from trainer.location import local_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from torch.distributed import ProcessGroup

    from trainer.checkpoint.commit import Commit
    from trainer.checkpoint.entry import Initial, State

T = TypeVar("T")
_LOG = logging.getLogger(__name__)
_TRIES = 3  # of a save whose writer dies
_HALF = 1.7  # times what half an interval touched, an interval touches: rows come back
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.001, 0.05
_BUSY, _DONE, _FAILED, _LOST = range(4)


class Checkpointer:
    """Keeps the newest checkpoints of one run in a place that all ranks see.

    Every method but `close` is collective: all ranks call it, in the same order, and an error on one
    rank is raised on all of them. `group` must carry CPU objects (gloo).
    """

    def __init__(
        self,
        uri: str,
        *,
        keep: int,
        rank: int,
        world_size: int,
        group: ProcessGroup | None = None,
        options: SavingOptions | None = None,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}; at least one checkpoint must stay")
        self._uri = uri
        self._store = open_store(uri)
        self._keep = keep
        self._options = options or SavingOptions()
        self._ranks = Ranks(rank, world_size, group)
        self._good: dict[int, int] = {}  # steps written or verified by this run, and their bytes
        self._damaged: set[int] = set()
        self._sound_files: set[str] = set()  # manifests verified with all their bytes
        self._chain: Chain | None = None
        self._numbers = 0
        self._writer = BackgroundWriter()
        self._staging = Staging()
        self._foreseen = False
        self._save: Save | None = None
        self._lost = 0  # saves in a row whose writer died
        self._reports: list[CheckpointReport] = []
        self._lock: DirectoryLock | None = None
        self._owner = self._ranks.first("checkpoint_dir cannot be used", self._take_over)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another run use the place; a save that is under way is given up."""
        self._writer.close()
        self._save = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def steps(self) -> tuple[int, ...]:
        """The steps of all committed checkpoints, oldest first, unverified."""
        return self._ranks.first(
            "checkpoints cannot be listed",
            lambda: tuple(each.step for each in catalogue.list_commits(self._store)),
        )

    def newest(self) -> int | None:
        """The step of the newest checkpoint whose every byte is as written; None if there is none.

        A damaged one is passed over with a warning that names what is wrong with it.

        Raises:
            CheckpointError: there are checkpoints, but all are damaged, or of another version.
        """
        return self._newest(self._verify)

    def load_newest(
        self, state: State, fingerprint: Mapping[str, Any] | None = None, *, initial: Initial | None = None
    ) -> tuple[int, dict[str, Any]] | None:
        """As `newest`, then `load`, but each byte is read about once; the step and its `extra`.

        Damage is found while `state` is filled, or right after, so that what a damaged checkpoint has left
        there is overwritten from the one before. None, and `state` as it was, if there is no checkpoint.

        Raises:
            CheckpointError: as by `newest` or `load`; nothing is to be made of `state` then.
        """

        def load(step: int) -> tuple[int, dict[str, Any]]:
            layers = load_checked(
                self._ranks, self._store, step, Target(state, fingerprint, initial), sound=self._sound_files
            )
            self._trust(layers.commit)
            return step, self._build_upon(layers.commit)

        return self._newest(load)

    def _newest(self, attempt: Callable[[int], T]) -> T | None:
        """What becomes of the newest checkpoint for which `attempt` raises no DamagedError, on all ranks."""
        damages: list[str] = []
        for step in reversed(self.steps()):
            try:
                return attempt(step)
            except DamagedError as error:
                damages.append(str(error))
            self._damaged.add(step)
            if self._ranks.rank == 0:
                _LOG.warning("the checkpoint of step %d is damaged and passed over: %s", step, damages[-1])
        if damages:
            raise CheckpointError(
                f"{self._store.uri}: every checkpoint is damaged ({len(damages)} in all), the newest: "
                f"{damages[0]}; put back a copy, or start afresh in another checkpoint_dir"
            )
        return None

    def save(
        self,
        step: int,
        state: State,
        extra: Mapping[str, Any],
        fingerprint: Mapping[str, Any],
        *,
        initial: Initial | None = None,
        wait: bool = True,
    ) -> CheckpointReport | None:
        """Write a checkpoint of the state as it is now; older ones beyond `keep` go once it is committed.

        `extra` and `fingerprint` are JSON and taken from rank 0. Where the step has a good checkpoint
        already, as right after a resume, that one stays as it is. `initial` is the state that the run began
        with, if differentials may be told from it.

        With `wait` the checkpoint is committed on return. Without, and if this Checkpointer writes in the
        background, the report is None, and comes from `poll` later; a save that is still under way from
        earlier is waited for.

        Raises:
            CheckpointError: on all ranks; what was committed before is intact.
        """
        started = time.perf_counter()
        self._settle(wait=True)
        if step in self._good:
            return self._told(step, started)
        while True:
            save = self._begin(Wanted(step, state, extra, fingerprint, initial, started))
            if not self._options.in_background:
                return self._write_here(save)
            self._write_there(save, state)
            save.stall_s = time.perf_counter() - started
            if not wait:
                return None
            self._settle(wait=True)
            if step in self._good:
                return self._told(step, started)

    def foresee(self, state: State) -> None:
        """Have memory for the first cut's copies there in time; call it about half an interval before.

        Takes as long as it takes to look through the stamps, once; nothing is asked of other ranks.
        """
        options = self._options
        if self._foreseen or not options.in_background or options.mode == "full":
            return
        self._foreseen = True
        first_rank = self._ranks.rank == 0
        touched = find_touched(state, first_rank=first_rank, since="saved")
        sizes = measure(state, touched, first_rank=first_rank)
        self._staging.prepare(int(min(_HALF * sizes.touched, options.copied_share * sizes.full)))

    def poll(self, *, wait: bool = False) -> list[CheckpointReport]:
        """What was committed since the last call; cheap, and to be called often while a save is under way.

        With `wait`, that save has come to its end before.

        Raises:
            CheckpointError: a save failed, on whichever rank.
        """
        self._settle(wait=wait)
        reports, self._reports = self._reports, []
        return reports

    @property
    def is_saving(self) -> bool:
        """Whether a save is under way, the same on all ranks."""
        return self._save is not None

    def load(
        self,
        step: int,
        state: State,
        fingerprint: Mapping[str, Any] | None = None,
        *,
        initial: Initial | None = None,
    ) -> dict[str, Any]:
        """Copy a committed checkpoint into `state`, in place; give back its `extra`.

        Any world size and any cut into shards will do. All ranks together must want every name
        that the checkpoint holds, and no other.

        Raises:
            CheckpointError: it belongs to another model or dataset, or names do not match.
        """
        target = Target(state, fingerprint, initial)
        return self._build_upon(load_trusted(self._ranks, self._store, step, target).commit)

    def _build_upon(self, commit: Commit) -> dict[str, Any]:
        """The state is now as in this checkpoint, whose `extra` is given back."""
        self._chain = Chain(commit.base, commit.layers)
        return dict(commit.extra)

    def _trust(self, commit: Commit) -> None:
        """Every byte is as written."""
        self._sound_files.update(reference.name for reference in commit.references)
        self._good[commit.step] = commit.bytes

    def _told(self, step: int, started: float) -> CheckpointReport:
        """The report of a committed step, to somebody who has waited for it."""
        waited_s = time.perf_counter() - started
        if self._reports and self._reports[-1].step == step:
            report = self._reports.pop()
            return replace(report, seconds=max(report.seconds, waited_s))
        return CheckpointReport(step, waited_s, self._good[step])

    def _take_over(self) -> int:
        """Have the place to ourselves, as far as can be; the number that this run claimed."""
        if self._store.local_file("owners") is not None:
            folder = local_path(self._uri)
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = DirectoryLock(folder)
        number = claim(self._store, lambda: catalogue.adoptable(self._store)).number
        self._store.tidy()  # what dead runs left half-written: whoever still writes there is fenced
        return number

    def _begin(self, wanted: Wanted) -> Save:
        """Cut, and decide on all ranks alike what is written."""
        cuts = [(intervals, intervals.cut()) for intervals in intervals_of(wanted.state)]
        chain = self._chain
        if chain is None and wanted.initial is not None:
            chain = Chain(wanted.initial.identity, ())
        kind, touched, sizes = self._choose(wanted, chain)
        if kind == "full" or chain is None:
            chain = Chain(None, ())
        earlier = chain.bottom if kind == "merged" else chain.layers
        self._numbers += 1
        save_id = SaveId(self._owner, self._numbers)
        plan = CommitPlan(
            step=wanted.step,
            save=save_id,
            world_size=self._ranks.world_size,
            base=chain.base,
            earlier=earlier,
            fingerprint=wanted.fingerprint,
            extra=wanted.extra,
            keep=self._keep,
            keep_every=self._options.keep_every,
            damaged=tuple(sorted(self._damaged)),
        )
        return Save(
            id=save_id,
            step=wanted.step,
            kind=kind,
            base=chain.base,
            earlier=earlier,
            plan=plan if self._ranks.rank == 0 else None,
            cuts=cuts,
            groups=groups_of(wanted.state, first_rank=self._ranks.rank == 0, touched=touched),
            sizes=sizes,
            started=wanted.started,
        )

    def _choose(self, wanted: Wanted, chain: Chain | None) -> tuple[Kind, Touched | None, Sizes]:
        """What is to be written, and of this rank how much; refuses what cannot go into a commit."""
        options, first_rank = self._options, self._ranks.rank == 0
        kind = plan_kind(
            options.mode,
            differentials=None if chain is None else chain.differentials,
            longest=options.chain,
        )

        def find() -> tuple[Touched | None, Sizes]:
            if first_rank:
                json.dumps([wanted.extra, wanted.fingerprint])
            touched = None
            if kind != "full":
                since: Since = "saved" if kind == "differential" else "base"
                touched = find_touched(wanted.state, first_rank=first_rank, since=since)
            return touched, measure(wanted.state, touched, first_rank=first_rank)

        touched, mine = self._ranks.each(problem_of(wanted.step), find)
        every = reduce(Sizes.plus, self._ranks.gather(mine))
        if touched is None or not is_worth_it(options.mode, every):
            return "full", None, Sizes(mine.full, mine.full)
        return kind, touched, mine

    def _write_here(self, save: Save) -> CheckpointReport:
        """Write in this process; the loop stands still."""
        try:
            stem = save.id.stem(save.step, self._ranks.rank)
            quantization = self._options.quantization
            self._ranks.each(
                save.problem, lambda: write_layer(self._store, stem, frames(save.groups), quantization)
            )
            layer = self._ranks.first(save.problem, lambda: self._commit(save.plan))
        except CheckpointError:
            self._clear(save)
            raise
        self._finish(save, layer)
        return replace(self._reports.pop(), seconds=time.perf_counter() - save.started)

    def _commit(self, plan: CommitPlan | None) -> tuple[Reference, ...]:
        assert plan is not None  # noqa: S101 - for the type checker: only rank 0 commits
        commit = commit_layer(self._store, plan, _not_shared)
        prune_after(self._store, plan)
        return commit.layers[-1]

    def _write_there(self, save: Save, state: State) -> None:
        """Freeze the state and have it written in the background."""
        self._save = save
        job = {
            "uri": self._store.uri,
            "stem": save.id.stem(save.step, self._ranks.rank),
            "quantization": self._options.quantization,
            "commit": None if save.plan is None else save.plan.to_json(),
        }
        fork = not self._is_little(save.sizes) and is_frozen_by_fork(state)
        allocate = self._staging.allocator()
        groups, save.groups = save.groups, []
        try:
            self._writer.submit(job, groups, fork=fork, allocate=allocate)
        except (BrokenPipeError, ConnectionError):
            save.answer = Answer({}, lost=True)
        except OSError as error:
            save.answer = Answer({"error": f"no process can be started to write it: {error}"})

    def _is_little(self, sizes: Sizes) -> bool:
        return sizes.touched <= self._options.copied_share * sizes.full

    def _settle(self, *, wait: bool) -> None:
        """Bring a save that is under way to its end, on all ranks; without `wait` only if it is there."""
        pause = _SHORTEST_WAIT_S
        while (save := self._save) is not None:
            codes = self._ranks.gather_numbers(self._code(save))
            if _FAILED in codes:
                self._fail(save)
            if _LOST in codes:
                self._recover(save)
            elif all(code == _DONE for code in codes):
                rows: Any = self._ranks.gather(save.answer.values.get("layer") if save.answer else None)[0]
                self._finish(save, tuple(Reference(*row) for row in rows))
            if not wait:
                return
            time.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_WAIT_S)

    def _code(self, save: Save) -> int:
        if save.answer is None:
            save.answer = self._writer.answer()
        if save.answer is None:
            return _BUSY
        if save.answer.lost:
            return _LOST
        return _FAILED if save.answer.error is not None else _DONE

    def _fail(self, save: Save) -> None:
        """Raise on all ranks what failed on one."""
        self._clear(save)
        answer = save.answer

        def tell() -> None:
            if answer is not None and answer.error is not None:
                raise (FencedError if answer.fenced else CheckpointError)(answer.error)

        self._ranks.together(save.problem, tell)

    def _recover(self, save: Save) -> None:
        """A process died over a save, which may be committed all the same; if not, the next one stands in."""
        layer = self._ranks.first(save.problem, lambda: self._find(save))
        if layer is not None:
            self._finish(save, layer)
            return
        self._clear(save)
        self._lost += 1
        if self._lost >= _TRIES:
            raise CheckpointError(
                f"{save.problem}: the process that writes died {self._lost} times in a row; look for what "
                "kills it (memory that runs out, for instance), or set checkpoint_async to false"
            )
        if self._ranks.rank == 0:
            _LOG.warning("%s: the process that wrote it died; another takes over", save.problem)

    def _find(self, save: Save) -> tuple[Reference, ...] | None:
        try:
            found = catalogue.find_commit(self._store, save.step)
        except DamagedError:  # or missing
            return None
        ours = (found.owner, found.number) == (save.id.owner, save.id.number)
        return found.layers[-1] if ours else None

    def _clear(self, save: Save) -> None:
        """Give a save up."""
        self._save = None
        self._writer.close()
        if self._ranks.rank == 0:
            catalogue.remove_save(self._store, save.step, save.id)

    def _finish(self, save: Save, layer: tuple[Reference, ...]) -> None:
        """A save is committed: the next one builds upon it."""
        self._save = None
        self._lost = 0
        if self._options.in_background and self._is_little(save.sizes):
            self._staging.prepare(save.sizes.touched)
        for intervals, cut in save.cuts:
            intervals.commit(cut, base=save.kind == "full")
        self._chain = Chain(save.base, (*save.earlier, layer))
        written = sum(reference.bytes for reference in layer)
        self._good[save.step] = written
        self._damaged.discard(save.step)
        seconds = time.perf_counter() - save.started
        self._reports.append(CheckpointReport(save.step, save.stall_s, written, seconds, save.kind))

    def _verify(self, step: int) -> int:
        """A checkpoint's step, if all is as written; every rank reads some of its files.

        Raises:
            DamagedError: on all ranks, with what is wrong.
        """
        sound: list[str] = []

        def check() -> Commit:
            commit = catalogue.find_commit(self._store, step)
            references = sorted(commit.references, key=lambda reference: reference.name)
            unknown = [each for each in references if each.name not in self._sound_files]
            for reference in unknown[self._ranks.rank :: self._ranks.world_size]:
                verify(self._store, reference)
                sound.append(reference.name)
            return commit

        try:
            self._trust(self._ranks.trusting(unusable(step), check))
        except DamagedError:  # an older one may share files with it
            self._sound_files.update(joined.from_iterable(self._ranks.gather(sound)))
            raise
        return step


def _not_shared(name: str) -> None:
    raise CheckpointError(
        f"rank 0 does not find {name}, which another rank wrote; checkpoint_dir must be a folder that all "
        "nodes share"
    )
