"""Fencing: of two runs that write to one place, the newer goes on and the older stops, without harm.

    owners/00000003.json           claimed: run number 3 wants to write here
    owners/00000003-adopted.json   took over: what the runs before it had committed by then

A run claims the next number, then looks at what is committed, and writes that down as taken over. From
then on only these commits and its own count. So a run that was thought dead, or sits on the other
side of a cut network, can go on writing for a while and change nothing: what it commits from then on
does not count. A commit is final once its writer has seen that nobody claimed the place before it
was made, since whoever claims later looks later. Numbers decide, never clocks.

Nothing that a run writes may have a name that another run could write: names bear its number.
"""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trainer.checkpoint.store import MissingError, NameTakenError, StoreError
from trainer.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer.checkpoint.store import Store

_LOG = logging.getLogger(__name__)
_FOLDER = "owners/"
_CLAIM = re.compile(r"owners/(\d{8,})\.json")
_ADOPTION = re.compile(r"owners/(\d{8,})-adopted\.json")
_FORMAT = "cloudrec-checkpoint-owner"
_KEPT = 10  # older ones are history


class FencedError(CheckpointError):
    """A newer run writes to this place; starting the older again would only begin the quarrel anew."""

    exit_code = 64


@dataclass(frozen=True, slots=True)
class Owner:
    """The newest run that took the place over; number 0 if none ever did."""

    number: int = 0
    adopted: frozenset[str] | None = frozenset()  # None: its list is damaged, and everything counts

    def counts(self, commit: str, owner: int) -> bool:
        """Whether a commit of this name by the run of this number counts."""
        return owner == self.number or self.adopted is None or commit in self.adopted


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right of this run to write to a store, until another claims it."""

    store: Store
    number: int

    def check(self) -> None:
        """Ask whether the place is still this run's: before a commit, and once more when it is made.

        Raises:
            FencedError: another run has claimed it.
        """
        newest = max(_numbers(self.store, _CLAIM), default=0)
        if newest > self.number:
            raise FencedError(
                f"{self.store.uri}: another run ({_holder(self.store, newest)}) writes its checkpoints "
                "here now, so this one stops; see which of the two is wanted, and give the other "
                "another checkpoint_dir"
            )


def current_owner(store: Store) -> Owner:
    """Who last took the place over, and so which commits count."""
    number = max(_numbers(store, _ADOPTION), default=0)
    if number == 0:
        return Owner()
    try:
        document = json.loads(store.read(_adoption_name(number)))
        return Owner(number, frozenset(map(str, document["adopted"])))
    except MissingError:  # a newer one has tidied up
        return current_owner(store)
    except (ValueError, KeyError, TypeError) as error:
        _LOG.warning(
            "%s/%s: damaged (%r); every commit is taken to count", store.uri, _adoption_name(number), error
        )
        return Owner(number, None)


def claim(store: Store, commits: Callable[[], Mapping[str, int]]) -> Ownership:
    """Take a place over from whoever had it; their commits go on to count.

    `commits` lists what is committed: the owner's number by the commit's name. It is called once the
    place is claimed.

    Raises:
        FencedError: another run claimed it at the same time, and later.
        StoreError: the store fails, or would let two runs have one name.
    """
    ownership = Ownership(store, _claim_next(store))
    before, found = current_owner(store), commits()
    adopted = sorted(name for name, owner in found.items() if before.counts(name, owner))
    store.create(_adoption_name(ownership.number), _document(ownership.number, adopted=adopted))
    ownership.check()
    _forget(store, ownership.number - _KEPT)
    return ownership


def _claim_next(store: Store) -> int:
    number = max(_numbers(store, _CLAIM), default=0)
    while True:
        number += 1
        try:
            store.create(_claim_name(number), _document(number))
        except NameTakenError:
            continue
        break
    try:
        store.create(_claim_name(number), _document(number))
    except NameTakenError:
        return number
    raise StoreError(
        f"{store.uri}: gives one name to two writers, so two runs could destroy each other's checkpoints; "
        "use a store that honours conditional writes"
    )


def _document(number: int, **more: Any) -> bytes:  # noqa: ANN401 - JSON
    told = {
        "format": _FORMAT,
        "schema_version": 1,
        "number": number,
        "token": uuid.uuid4().hex,  # no two are alike
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),  # for people
    }
    return json.dumps({**told, **more}).encode()


def _holder(store: Store, number: int) -> str:
    try:
        document = json.loads(store.read(_claim_name(number)))
        return f"process {document['pid']} on {document['host']}, since {document['time']}"
    except (StoreError, ValueError, KeyError, TypeError):
        return f"number {number}"


def _numbers(store: Store, kind: re.Pattern[str]) -> set[int]:
    matches = (kind.fullmatch(name) for name in store.sizes(_FOLDER))
    return {int(match[1]) for match in matches if match}


def _forget(store: Store, last: int) -> None:
    old = [number for number in _numbers(store, _CLAIM) if number <= last]
    store.remove([name(number) for number in old for name in (_adoption_name, _claim_name)])


def _claim_name(number: int) -> str:
    return f"{_FOLDER}{number:08d}.json"


def _adoption_name(number: int) -> str:
    return f"{_FOLDER}{number:08d}-adopted.json"
