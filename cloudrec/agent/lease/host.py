"""Decides which pod hosts the rendezvous of a run that may continue with fewer nodes.

Torchrun finds the other nodes by one address. If that were always the first pod's, a run could not continue
after the loss of that pod. So the host claims the next number by creating the file LAUNCH-NUMBER.json below
RESULTS/rendezvous, which only one pod can, and then renews the file every few seconds. A pod that has lost
the rendezvous claims the next number once the newest claim is released, or was not renewed for a while by
this pod's own clock, since the clocks of two machines may differ. The first pod of a launch makes the first
claim.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cloudrec.errors import RunFailedError, StorageError
from cloudrec_contract.safe_json import record_of, safe_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloudrec.launchers.base.results_store import Place

_FOLDER = "rendezvous"
_CLAIM = re.compile(r"rendezvous/(\d+)-(\d+)\.json")


@dataclass(frozen=True, kw_only=True)
class LeaseTimes:
    """The times of a lease, in seconds.

    Args:
        renew_s: between two renewals of a claim.
        lease_s: without a renewal, after which a claim ends; one slow answer of the store must not end it.
        first_s: for the first pod's claim; then another pod claims, since that pod's node may never come.
        pause_s: between two looks at the claims.
    """

    renew_s: float = 4.0
    lease_s: float = 20.0
    first_s: float = 180.0
    pause_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class HostClaim:
    """One pod's claim to host the rendezvous.

    Args:
        launch: the number of the launch.
        number: the number of the claim in the launch, from 1.
        pod: the pod that made it.
        endpoint: the address and port at which it hosts.
        renewed: how often it was renewed.
        released: whether its pod hosts no longer.
    """

    launch: int
    number: int
    pod: str
    endpoint: str
    renewed: int = 0
    released: bool = False

    @property
    def name(self) -> str:
        """The name of its file below RESULTS."""
        return f"{_FOLDER}/{self.launch:04d}-{self.number:06d}.json"

    def text(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(asdict(self)).encode()


class RendezvousHost:
    """One pod's view of who hosts the rendezvous.

    Args:
        place: RESULTS.
        launch: the number of the launch.
        pod: this pod's name and uid.
        endpoint: the address and port at which this pod would host.
        first: the address and port of the pod that hosts first.
        say: prints a line to the pod's log.
        times: the times of the lease.
        now: returns seconds of a clock that no one can set.
    """

    def __init__(
        self,
        place: Place,
        *,
        launch: int,
        pod: str,
        endpoint: str,
        first: str,
        say: Callable[[str], None],
        times: LeaseTimes | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place, self._launch, self._pod = place, launch, pod
        self._endpoint, self._first, self._say = endpoint, first, say
        self._times, self._now = times or LeaseTimes(), now
        self._held: HostClaim | None = None
        self._superseded = threading.Event()
        self._ended = threading.Event()
        self._renewal: threading.Thread | None = None

    @property
    def is_superseded(self) -> bool:
        """Whether this pod hosted the rendezvous, and another pod has claimed it since."""
        return self._superseded.is_set()

    def find(self, *, is_stopped: Callable[[], bool]) -> str:
        """Return the endpoint of the pod that hosts, which may be this one; "" if the pod is stopped before.

        Args:
            is_stopped: returns whether this pod is asked to end.

        Raises:
            StorageError: RESULTS does not answer.
            RunFailedError: a later launch of the run has begun.
        """
        if self.is_superseded:
            self._held = None
            self._superseded.clear()
        seen: tuple[HostClaim | None, float] = (None, self._now())
        while not is_stopped():
            newest = self._newest()
            if newest != seen[0]:
                seen = (newest, self._now())
            silent_s = self._now() - seen[1]
            if newest is None:
                may_claim = self._endpoint == self._first or silent_s > self._times.first_s
            elif self._is_mine(newest):
                return self._endpoint
            else:
                # A claim for this address is of an earlier pod, which this one has replaced.
                is_old = newest.endpoint == self._endpoint
                may_claim = newest.released or is_old or silent_s > self._times.lease_s
            if may_claim and self._claim(after=newest):
                return self._endpoint
            if newest is not None and not may_claim and self._is_renewed(newest):
                return newest.endpoint
            time.sleep(self._times.pause_s * (0.5 + random.random()))  # noqa: S311 - so that pods do not ask together
        return ""

    def release(self) -> None:
        """Let the next pod host at once."""
        self._ended.set()
        if self._renewal is not None:
            self._renewal.join(self._times.renew_s)
        if self._held is not None and not self.is_superseded:
            self._write(HostClaim(**{**asdict(self._held), "released": True}))
        self._held = None

    def _is_mine(self, claim: HostClaim) -> bool:
        return claim.pod == self._pod and self._held is not None and claim.number == self._held.number

    def _is_renewed(self, newest: HostClaim) -> bool:
        """Return whether a claim is renewed while this pod looks; a lost pod's claim is not."""
        deadline = self._now() + self._times.lease_s / 2
        while self._now() < deadline:
            if (now := self._newest()) != newest:
                return now is not None and now.number == newest.number and not now.released
            time.sleep(self._times.pause_s)
        return False

    def _newest(self) -> HostClaim | None:
        """Return the newest claim of this launch."""
        matches = [match for name in self._place.sizes(f"{_FOLDER}/") if (match := _CLAIM.fullmatch(name))]
        found = max(((int(each[1]), int(each[2]), each[0]) for each in matches), default=None)
        if found is None or found[0] < self._launch:
            return None
        if found[0] > self._launch:
            raise RunFailedError(
                f"launch {found[0]} of this run has begun, and this is launch {self._launch}",
                remedy="end this pod: it was replaced",
            )
        try:
            return record_of(HostClaim, safe_object(self._place.read(found[2]) or b""))
        except ValueError:  # another version's claim; it counts as one that is not renewed
            return HostClaim(launch=found[0], number=found[1], pod="", endpoint="")

    def _claim(self, *, after: HostClaim | None) -> bool:
        """Claim the number after another claim; return False if another pod was faster."""
        number = after.number + 1 if after else 1
        claim = HostClaim(launch=self._launch, number=number, pod=self._pod, endpoint=self._endpoint)
        if not self._place.create(claim.name, claim.text()):
            return False
        self._held = claim
        self._superseded.clear()
        if after is not None:
            self._say(f"this pod hosts the rendezvous from now on, after {after.pod or 'another pod'}")
        if self._renewal is None:
            self._renewal = threading.Thread(target=self._renew, name="rendezvous", daemon=True)
            self._renewal.start()
        return True

    def _renew(self) -> None:
        while not self._ended.wait(self._times.renew_s):
            held = self._held
            if held is None or self.is_superseded:
                continue
            try:
                newest = self._newest()
            except StorageError:  # the lease may run out; the next renewal shows it
                continue
            except RunFailedError:  # a newer launch has begun; the pod ends when it looks for its host again
                self._superseded.set()
                return
            if newest is not None and newest.number > held.number:
                self._superseded.set()
            else:
                self._write(HostClaim(**{**asdict(held), "renewed": held.renewed + 1}))

    def _write(self, claim: HostClaim) -> None:
        try:
            self._place.write(claim.name, claim.text())
        except StorageError:
            return  # as above
        if self._held is not None and self._held.number == claim.number:
            self._held = claim
