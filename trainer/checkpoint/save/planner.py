"""The beginning of a save: the cut, and the decision what to write, which is the same on all ranks."""

from __future__ import annotations

import json
from functools import reduce
from typing import TYPE_CHECKING

from trainer.checkpoint.format.commit import save_of
from trainer.checkpoint.history import Chain
from trainer.checkpoint.load.loading import intervals_of
from trainer.checkpoint.save.committing import CommitPlan
from trainer.checkpoint.save.device import find_device
from trainer.checkpoint.save.policy import is_base_due, is_worth_it, measure, plan_kind
from trainer.checkpoint.save.saves import Save, Sizes, problem_of
from trainer.checkpoint.save.snapshot import find_touched, groups_of
from trainer.checkpoint.save.table_stream import stream_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from trainer.base.row_stamps import Since
    from trainer.checkpoint.agreement import Ranks
    from trainer.checkpoint.claimed_store import ClaimedStore
    from trainer.checkpoint.history import History
    from trainer.checkpoint.load.scrubber import Scrubber
    from trainer.checkpoint.save.device import SideDevice
    from trainer.checkpoint.save.saves import Kind, SavingOptions, Wanted
    from trainer.checkpoint.save.touched_bits import Touched


class SavePlanner:
    """Plans saves that build upon the newest checkpoint; `keep` checkpoints are kept."""

    def __init__(
        self,
        ranks: Ranks,
        claimed: ClaimedStore,
        history: History,
        options: SavingOptions,
        *,
        keep: int,
        device: SideDevice | None = None,
        scrubber: Scrubber | None = None,
    ) -> None:
        self._ranks = ranks
        self._claimed = claimed
        self._history = history
        self._options = options
        self._keep = keep
        self._device = device
        self._scrubber = scrubber  # on rank 0

    def begin(self, wanted: Wanted) -> Save:
        """Make the cut and decide what to write. Collective."""
        self._device = self._device or find_device(wanted.state)
        cuts = [(intervals, intervals.cut()) for intervals in intervals_of(wanted.state)]
        chain = self._history.chain
        if chain is None and wanted.initial is not None:
            chain = Chain(wanted.initial.identity, ())
        before = () if chain is None else chain.layers
        kind, touched, sizes = self._choose(wanted, chain)
        if kind == "full" or chain is None:
            chain = Chain(None, ())
        earlier = chain.bottom if kind == "merged" else chain.layers
        save_id = self._claimed.next_save()
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
            damaged=self._history.damaged,
        )
        is_first = self._ranks.rank == 0
        tables = None
        if self._device is not None:
            tables = stream_of(
                wanted.state,
                self._device,
                first_rank=is_first,
                touched=touched,
                since=_since(kind),
                limits=self._options.stream,
            )
        return Save(
            id=save_id,
            step=wanted.step,
            kind=kind,
            above=Chain(chain.base, earlier),
            plan=plan if is_first else None,
            cuts=cuts,
            groups=groups_of(wanted.state, first_rank=is_first, touched=touched, device=self._device),
            tables=tables,
            sizes=sizes,
            needed=tuple(
                {str(save_id): None, **{save_of(each.name): None for layer in before for each in layer}}
            ),
            started=wanted.started,
        )

    def _choose(self, wanted: Wanted, chain: Chain | None) -> tuple[Kind, Touched | None, Sizes]:
        """Return the save's kind, the touched rows and this rank's bytes; refuses what is not JSON."""
        options, first_rank = self._options, self._ranks.rank == 0
        alone = self._keep > 1 and self._history.is_newest_alone
        kind = plan_kind(options.mode, chain, longest=options.chain, alone=alone)
        if options.scrub_bytes_per_s and self._history.renounce(self._damaged_files):
            kind = "full"  # it shares no file with the damaged chain

        def find() -> tuple[Touched | None, Sizes]:
            if first_rank:
                # Fails here, on all ranks and before any write, instead of in rank 0's commit.
                json.dumps([wanted.extra, wanted.fingerprint])
            touched = None
            if kind != "full":
                touched = find_touched(
                    wanted.state, first_rank=first_rank, since=_since(kind), device=self._device
                )
            return touched, measure(wanted.state, touched, first_rank=first_rank)

        touched, mine = self._ranks.each(problem_of(wanted.step), find)
        # Decided by the sum over all ranks: ranks must not choose different kinds.
        every = reduce(Sizes.plus, self._ranks.gather(mine))
        renewed = kind == "merged" and self._keep > 1 and chain is not None and is_base_due(chain, every)
        if touched is None or renewed or not is_worth_it(options.mode, every):
            return "full", None, Sizes(mine.full, mine.full)
        return kind, touched, mine

    def _damaged_files(self) -> Collection[str]:
        return () if self._scrubber is None else self._scrubber.found


def _since(kind: Kind) -> Since:
    return "saved" if kind == "differential" else "base"
