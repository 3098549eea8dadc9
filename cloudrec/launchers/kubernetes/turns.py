"""Which cluster trains a run that may move between the clusters of several regions.

The clusters share one storage. Its folder `turns/RUN` has a file for each turn, 00000001.json and so on, and
the newest one counts. A file is only ever created, under a free number, so of two writers one fails and reads
again. `train` offers the first turn to the first cluster. A cluster has the run once its keeper has taken the
offer, which is the next turn. A keeper without nodes offers the run to the next cluster. If an offer is not
taken within `ACCEPT_S`, for example because the cluster was removed, the cluster after that one takes it.
The keeper that has a run writes another turn every `RENEW_S`. If it does not, and the run's pods write
nothing, another cluster takes the run (see `keeper.managed.sharing`).

The turns decide who trains; they need not be perfect: if two clusters trained a run, the older owner of its
checkpoints would write nothing (see `trainer.checkpoint.store.owner`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, DataError
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.base.record import place_after
from cloudrec.launchers.base.results_store import open_place
from cloudrec_contract.layout import turns_uri
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from cloudrec.launchers.base.results_store import Place
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec_contract.objectstore.retries import Patience

ACCEPT_S = RENEW_S = 600.0
STOPPED = "stopped"  # the end of a run that its user, or the end of its cluster, has stopped
_DIGITS, _TRIES = 8, 10
_MOST_BYTES = 64 << 10
_ENDS = ("", "succeeded", "failed", STOPPED)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One turn of a run.

    Attributes:
        number: its number, 1 for the first.
        launch: the launch of the run that it belongs to.
        clusters: the clusters that the run may use, the preferred one first.
        cluster: the cluster that is offered the run, or has it.
        by: the cluster whose keeper wrote the turn; empty for the command that launched the run.
        at: the time, in seconds since the epoch.
        reason: why the run moved; empty for none.
        step: the steps that are done; None if unknown.
        steps: all steps of the run; None if unknown.
        ended: how the run ended in this cluster: succeeded, failed or stopped; empty before its end.
    """

    number: int
    launch: int
    clusters: tuple[str, ...]
    cluster: str
    at: float
    by: str = ""
    reason: str = ""
    step: int | None = None
    steps: int | None = None
    ended: str = ""

    @property
    def is_taken(self) -> bool:
        """Whether the cluster has the run; False for an offer."""
        return self.by == self.cluster

    def after(self, cluster: str) -> str:
        """Return the cluster that follows another one; the first one follows the last."""
        return self.clusters[(self.clusters.index(cluster) + 1) % len(self.clusters)]

    def to_json(self) -> str:
        """Return the text of the turn's file."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def of(cls, text: str | bytes) -> Turn:
        """Return the turn in a file's text; DataError if it is damaged."""
        try:
            turn = record_of(cls, safe_object(text, most=_MOST_BYTES))
        except ValueError as error:
            raise DataError(f"a turn of the run is damaged: {error}") from error
        turn.check()
        return turn

    def check(self) -> None:
        """Raise DataError for an impossible turn: a negative number, or a cluster that the run cannot use."""
        numbers = (self.number, self.launch, self.step or 0, self.steps or 0)
        is_sound = (
            min(numbers) >= 0
            and self.cluster in self.clusters
            and self.by in ("", *self.clusters)
            and self.ended in _ENDS
        )
        if not is_sound:
            raise DataError(f"a turn of the run is damaged: {str(self)[:200]!r}")


def open_turns(
    storage: str,
    run: str,
    environment: Mapping[str, str] | None = None,
    *,
    patience: Patience | None = None,
) -> Place:
    """Return the folder of a run's turns, without a call to the store.

    Args:
        storage: URI of the storage that the clusters share.
        run: the run's name.
        environment: variables of the store's client.
        patience: how often a call is repeated; None for the usual number.
    """
    return open_place(turns_uri(storage, run), environment, patience=patience)


def newest_turn(place: Place) -> Turn | None:
    """Return the newest turn; None before the first.

    Raises:
        StorageError: the store refuses.
        DataError: the file is damaged.
    """
    numbers = [int(name[:_DIGITS]) for name in place.children("") if _is_turn(name)]
    if not numbers:
        return None
    found = place.read(_name(max(numbers)), limit=_MOST_BYTES)
    if found is None:
        raise DataError(f"turn {max(numbers)} was removed from {place.uri}")
    turn = Turn.of(found)
    if turn.number != max(numbers):
        raise DataError(f"{_name(max(numbers))} in {place.uri} has the number {turn.number}")
    return turn


def create_turn(place: Place, turn: Turn) -> bool:
    """Write a turn; return False if another writer has this number.

    Raises:
        StorageError: the store refuses, or the response was lost; the turn may have been written.
    """
    return place.create(_name(turn.number), turn.to_json().encode())


def offer_first(spec: RunSpec, *, launch: int, at: float) -> None:
    """Offer a launch to the run's first cluster, as `train` does.

    Raises:
        StorageError: the store refuses.
        DataError: the newest turn is damaged, or other writers were faster ten times.
    """

    def offer(newest: Turn | None) -> Turn | None:
        if newest is not None and newest.launch == launch and not newest.ended:
            return None  # of the same launch, whose command was killed
        return Turn(
            number=newest.number + 1 if newest else 1,
            launch=launch,
            clusters=(spec.cluster, *spec.elsewhere),
            cluster=spec.cluster,
            at=at,
        )

    _add(open_turns(spec.storage, spec.name, spec.environment), offer)


def end_turns(spec: RunSpec, *, launch: int, at: float) -> None:
    """Write that a launch is stopped, so that no cluster takes it, not even one that does not answer now.

    Raises:
        StorageError: the store refuses.
        DataError: the newest turn is damaged, or other writers were faster ten times.
    """

    def end(newest: Turn | None) -> Turn | None:
        if newest is None or newest.launch != launch or newest.ended:
            return None
        return replace(newest, number=newest.number + 1, by="", at=at, ended=STOPPED)

    _add(open_turns(spec.storage, spec.name, spec.environment), end)


def _add(place: Place, make: Callable[[Turn | None], Turn | None]) -> None:
    """Create the turn that `make` returns for the newest one; again if another writer was faster."""
    for _ in range(_TRIES):
        turn = make(newest_turn(place))
        if turn is None or create_turn(place, turn):
            return
    raise DataError(f"other writers changed the turns in {place.uri} {_TRIES} times")


def spec_by_turn(run: RunFolder) -> RunSpec:
    """Return the spec of a run of several clusters for the one that has it, or is offered it.

    If the storage does not answer, it is the cluster that had the run when it was last seen.
    """
    spec, events = run.spec(), run.ledger.read()
    launch = last_launch(events)
    try:
        turn = newest_turn(open_turns(spec.storage, spec.name, spec.environment))
    except CloudrecError:
        cluster = place_after(events, launch)
    else:
        cluster = turn.cluster if turn is not None and turn.launch == launch else ""
    return run.spec_in(cluster) if cluster in spec.elsewhere else spec


def others(run: RunFolder, here: RunSpec) -> list[RunSpec]:
    """Return the specs of a run for its other clusters.

    Args:
        run: the run.
        here: the spec for the cluster that is left out.
    """
    first = run.spec()
    found = [first, *map(run.spec_in, first.elsewhere)]
    return [each for each in found if each.cluster != here.cluster]


def _name(number: int) -> str:
    return f"{number:0{_DIGITS}d}.json"


def _is_turn(name: str) -> bool:
    return len(name) == _DIGITS + 5 and name[:_DIGITS].isdecimal() and name.endswith(".json")
