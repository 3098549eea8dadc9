"""Fencing: of two runs that write to one place, the newer continues and the older stops, without harm.

    owners/00000003.json           claimed: run number 3 wants to write here
    owners/00000003-adopted.json   took over: what the runs before it had committed by then

A run claims the next number, then lists the commits and records them as adopted. From then on, only these
commits and its own count. So a run that was taken for dead, or is cut off by the network, may continue to
write and changes nothing: its later commits do not count. A commit is final once its writer has checked,
after creating it, that there is no newer claim, since a later claim lists the commits later. Only numbers
decide, never clocks.

No name that a run writes can be written by another run: each name contains the run's number.
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

from cloudrec_contract.exit_codes import BAD_CONFIG
from cloudrec_contract.safe_json import safe_object
from trainer.base.errors import CheckpointError
from trainer.checkpoint.store.base import MissingError, NameTakenError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trainer.checkpoint.store.base import Store

_LOG = logging.getLogger(__name__)
_FOLDER = "owners/"
_CLAIM = re.compile(r"owners/(\d{8,})\.json")
_ADOPTION = re.compile(r"owners/(\d{8,})-adopted\.json")
_FORMAT = "cloudrec-checkpoint-owner"
_KEPT = 10  # claims that are kept; older ones are removed


class FencedError(CheckpointError):
    """A newer run has claimed the store. Final: restarting this run would fence the newer one in turn."""

    exit_code = BAD_CONFIG


@dataclass(frozen=True, slots=True)
class Owner:
    """The newest run that adopted the store's commits; number 0 if there is none."""

    number: int = 0
    adopted: frozenset[str] | None = frozenset()  # None: its list is damaged, and everything counts

    def counts(self, commit: str, owner: int) -> bool:
        """Whether a commit of this name, by the run of this number, counts.

        A later run's commit counts: a run commits only after it adopted, so its adoption file was lost.
        """
        return owner >= self.number or self.adopted is None or commit in self.adopted


@dataclass(frozen=True, slots=True)
class Ownership:
    """The right of this run to write to a store, until another claims it."""

    store: Store
    number: int

    def check(self) -> None:
        """Check that no newer run has claimed the store: before a commit, and again after it.

        Raises:
            FencedError: a newer run has claimed it.
        """
        newest = max(_numbers(self.store, _CLAIM), default=0)
        if newest > self.number:
            raise FencedError(
                f"{self.store.uri}: another run ({_holder(self.store, newest)}) writes its checkpoints "
                "here now, so this one stops; see which of the two is wanted, and give the other "
                "another checkpoint_dir"
            )


def current_owner(store: Store) -> Owner:
    """Return the newest owner, which decides which commits count."""
    number = max(_numbers(store, _ADOPTION), default=0)
    if number == 0:
        return Owner()
    try:
        document = safe_object(store.read(_adoption_name(number)))
        return Owner(number, frozenset(map(str, document["adopted"])))
    except MissingError:  # a newer run has removed old claims since the listing
        return current_owner(store)
    except (ValueError, KeyError, TypeError) as error:
        _LOG.warning(
            "%s/%s: damaged (%r); every commit is taken to count", store.uri, _adoption_name(number), error
        )
        return Owner(number, None)


def claim(store: Store, commits: Callable[[], Mapping[str, int]]) -> Ownership:
    """Claim a store and adopt the commits of the runs before, which continue to count.

    `commits` returns the owner's number of every commit, by the commit's name. It is called after the claim.

    Raises:
        FencedError: another run claimed it at the same time, with a higher number.
        StoreError: the store fails, or lets two writers create one name.
    """
    ownership = Ownership(store, _claim_next(store))
    before, found = current_owner(store), commits()
    adopted = sorted(name for name, owner in found.items() if before.counts(name, owner))
    store.create(_adoption_name(ownership.number), _document(ownership.number, adopted=adopted))
    ownership.check()
    _forget(store, ownership.number - _KEPT)
    return ownership


def _claim_next(store: Store) -> int:
    number = max(_numbers(store, _CLAIM) | _numbers(store, _ADOPTION), default=0)  # one may be lost
    while True:
        number += 1
        try:
            store.create(_claim_name(number), _document(number))
        except NameTakenError:
            continue
        break
    # A store that ignores conditional writes would accept a second creation. Fencing depends on them, so
    # such a store is refused here. The document differs by its token.
    try:
        store.create(_claim_name(number), _document(number))
    except NameTakenError:
        return number
    raise StoreError(
        f"{store.uri}: gives one name to two writers, so two runs could destroy each other's checkpoints; "
        "use a store that honours conditional writes"
    )


def _document(number: int, **more: Any) -> bytes:  # noqa: ANN401 - JSON
    fields = {
        "format": _FORMAT,
        "schema_version": 1,
        "number": number,
        "token": uuid.uuid4().hex,  # unique, so that two claims never have the same bytes
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),  # for people
    }
    return json.dumps({**fields, **more}).encode()


def _holder(store: Store, number: int) -> str:
    try:
        document = safe_object(store.read(_claim_name(number)))
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
