"""Runs torchrun in a pod, and decides whether its restarts are useful.

torchrun starts ranks again after any exit code, and does not report the codes. This module reads them from
the ledger, and ends torchrun if another attempt is useless. If the rendezvous is lost with the pod that hosts
it, torchrun is started again in this pod, which already has the dataset on its disk.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.agent.exits.classify import (
    Ending,
    PodAttempt,
    attempts_of,
    crash_in,
    ending_after,
    final_ending,
    spent_ending,
)
from cloudrec.errors import StorageError
from cloudrec.launchers.base import outputs
from cloudrec.launchers.base.script.finish import note_stop
from cloudrec.launchers.base.verdict import describe, have_stopped
from cloudrec.process import tether
from cloudrec_contract.exit_codes import FINISHED, GANG_INCOMPLETE, STOPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.agent.lease.host import RendezvousHost
    from cloudrec.agent.settings import PodSettings
    from cloudrec.agent.supervisor.tee import Tee
    from cloudrec.launchers.base.verdict import RankExit

_POLL_S = 0.2
_HOPELESS_GRACE_S = 5.0  # for ranks to end when another attempt is useless
_COPY_S = 5.0  # of the grace, for the last copy of files
_LEAST_SHARE = 0.6  # of the grace, which the ranks get even if less than `_COPY_S` remains
_SEARCH_S = 1800.0  # for a rendezvous: a replacement of a machine may take long
_SEARCH_PAUSE_S = 1.0


class TorchrunWatch:
    """One pod's torchrun, which is started again if its rendezvous is lost.

    Args:
        settings: the pod's settings.
        command: returns torchrun's command for an endpoint of the rendezvous; "" for the manifest's.
        environment: torchrun's environment.
        tee: copies torchrun's output.
        record: appends an event to the ledger.
        is_finished: returns whether other pods have finished the run.
        has_begun: returns whether the run's ranks have started before, in whichever pods.
        host: finds the pod that hosts the rendezvous; None if it is always the manifest's.
    """

    def __init__(
        self,
        settings: PodSettings,
        command: Callable[[str], Sequence[str]],
        environment: Mapping[str, str],
        *,
        tee: Tee,
        record: Callable[..., None],
        is_finished: Callable[[], bool],
        has_begun: Callable[[], bool] = lambda: True,
        host: RendezvousHost | None = None,
    ) -> None:
        self._settings = settings
        self._command = command
        self._environment = dict(environment)
        self._tee = tee
        self._record = record
        self._is_finished = is_finished
        self._has_begun = has_begun
        self._host = host
        # The time until which the nodes of a run that has not started must have joined; infinity once it has.
        limit_s = settings.start_timeout_s or float("inf")
        self._gang_deadline = time.monotonic() + limit_s
        self._stopped_at: float | None = None  # monotonic
        self._signalled = False
        self._deadline = float("inf")  # monotonic time at which torchrun is killed
        self._crashes: dict[int, RankExit] = {}
        self._errors: dict[int, str] = {}
        self._judged = -1  # the newest attempt whose end is known
        self._restarting = False
        self._spared = tether.children()  # children from before torchrun, which are not killed with it

    def stop(self) -> None:
        """Request the end of the ranks; called from a signal handler."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()

    @property
    def is_stopped(self) -> bool:
        """Whether the end of the ranks was requested."""
        return self._stopped_at is not None

    def seconds_left(self) -> float:
        """Return the seconds until this pod is killed; infinity if it was not stopped."""
        if self._stopped_at is None:
            return float("inf")
        return self._stopped_at + self._settings.grace_s - 0.5 - time.monotonic()

    def run(self) -> Ending:
        """Run torchrun, and return how the pod ends."""
        self._tee.listen()
        give_up = time.monotonic() + _SEARCH_S
        while True:
            begun = len(self._attempts())
            ending = self._met()
            # The ranks have started in between, so the search for the rendezvous had succeeded.
            if len(self._attempts()) > begun:
                give_up = time.monotonic() + _SEARCH_S
            if ending.code != STOPPED or self._signalled or time.monotonic() > give_up:
                return ending
            if self._is_finished():
                return Ending(code=FINISHED, cause="the other pods have finished the run")
            self._restarting = True
            self._record("restarting", attempt=len(self._attempts()), cause=ending.cause)
            self._tee.say(f"{ending.cause}: looking for it again")
            if self._stopped_within(_SEARCH_PAUSE_S):
                return ending_after(self._attempts(), STOPPED, stopped=True)

    def _stopped_within(self, seconds: float) -> bool:
        give_up = time.monotonic() + seconds
        while self._stopped_at is None and time.monotonic() < give_up:
            time.sleep(_POLL_S)
        return self._stopped_at is not None

    def _met(self) -> Ending:
        """Find the pod that hosts the rendezvous, run torchrun to its end, and return how it ended."""
        if self._host is None:
            return self._once("")
        try:
            endpoint = self._host.find(is_stopped=lambda: self._stopped_at is not None or self._is_finished())
        except StorageError as error:
            return Ending(code=STOPPED, cause=f"the storage does not say who hosts: {error.message}")
        if not endpoint:
            return ending_after(self._attempts(), STOPPED, stopped=self._stopped_at is not None)
        return self._once(endpoint)

    def _once(self, endpoint: str) -> Ending:
        """Run torchrun to its end, and return how it ended."""
        process = subprocess.Popen(
            self._command(endpoint),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._tee.descriptor,
            stderr=self._tee.descriptor,
        )
        verdict: Ending | None = None
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
            # Orphans below become children of this process (`tether.adopt_orphans`), which must collect them.
            tether.reap(spared=[process.pid, *self._spared])
            if self._settings.parent and os.getppid() != self._settings.parent:
                self.stop()  # without its parent, no process would stop this agent
            attempts = self._attempts()
            ended = self._note_ends(attempts)
            verdict = verdict or self._verdict(attempts)
            if verdict is None and self._stopped_at is None:
                self._record_restarts(attempts, ended)
            self._end_in_time(process, hopeless=verdict is not None)
            if self._is_superseded and not self._signalled:
                process.kill()
        tether.kill_children(spared=self._spared)
        attempts = self._attempts()
        self._note_ends(attempts)
        verdict = verdict or self._verdict(attempts)
        if verdict is None and self._is_superseded:
            return Ending(code=STOPPED, cause="another pod hosts the rendezvous, with the other nodes")
        return verdict or ending_after(attempts, process.returncode, stopped=self._stopped_at is not None)

    @property
    def _is_superseded(self) -> bool:
        """Whether the other nodes train with another host, so that what these ranks do does not count."""
        return self._host is not None and self._host.is_superseded

    def _attempts(self) -> list[PodAttempt]:
        return attempts_of(self._settings.folder.ledger.read(), launch=self._settings.launch)

    def _verdict(self, attempts: Sequence[PodAttempt]) -> Ending | None:
        """Return the end of the pod if torchrun must not continue, else None."""
        final = final_ending(attempts, self._errors)
        if final or self._stopped_at is not None:
            return final
        if late := self._incomplete(attempts):
            return late
        spent = spent_ending(attempts, self._crashes, self._errors, max_restarts=self._settings.max_restarts)
        return spent or self._leaving(attempts)

    def _incomplete(self, attempts: Sequence[PodAttempt]) -> Ending | None:
        """Return the end of the pod if the nodes of a run did not join before its first step in time.

        Without it, the pods that have a node would hold it for as long as the others have none.
        """
        if attempts:
            self._gang_deadline = float("inf")
        if time.monotonic() < self._gang_deadline:
            return None
        try:
            begun = self._has_begun()
        except StorageError:  # asked again at the next look
            return None
        if (
            begun
        ):  # this pod replaces one of a run that trains: the search for the rendezvous has its own limit
            self._gang_deadline = float("inf")
            return None
        limit = f"{self._settings.start_timeout_s:g} s (train.settings.start_timeout_s)"
        cause = f"not all nodes of the run joined within {limit}, so that no rank has started"
        return Ending(code=GANG_INCOMPLETE, cause=cause)

    def _leaving(self, attempts: Sequence[PodAttempt]) -> Ending | None:
        """Return the end of the pod if its ranks have stopped after a preemption notice, else None."""
        last = attempts[-1] if attempts else None
        if last is None or not last.ranks or not have_stopped(last.exits, world_size=len(last.ranks)):
            return None
        notices = [exit_.end.notice for exit_ in last.exits if exit_.end and exit_.end.machine_leaves]
        return (
            Ending(code=STOPPED, cause=f"this machine is being preempted: {notices[0]}") if notices else None
        )

    def _note_ends(self, attempts: Sequence[PodAttempt]) -> list[PodAttempt]:
        """Return the attempts that have ended since the last call, and remember their crashed ranks."""
        ended = [each for each in attempts if each.number > self._judged and each.is_over]
        for attempt in ended:
            self._judged = attempt.number
            crash = crash_in(attempt, self._error_of)
            if crash:
                self._crashes[attempt.number] = crash
                self._errors[attempt.number] = self._error_of(crash.rank) or ""
        return ended

    def _record_restarts(self, attempts: Sequence[PodAttempt], ended: Sequence[PodAttempt]) -> None:
        """Record that ranks are started again, and later that they train."""
        for attempt in ended:
            crash = self._crashes.get(attempt.number)
            self._restarting = True
            cause = (
                describe(crash, error=self._errors[attempt.number] or None)
                if crash
                else "other ranks were lost, or stopped"
            )
            self._record("restarting", attempt=attempt.number + 1, cause=cause)
        newest = attempts[-1] if attempts else None
        if self._restarting and newest and newest.number > self._judged:
            self._restarting = False
            self._record("running", attempt=newest.number)

    def _error_of(self, rank: int) -> str | None:
        return outputs.last_error(self._settings.folder.rank_log(rank))

    def _end_in_time(self, process: subprocess.Popen[bytes], *, hopeless: bool) -> None:
        """Signal torchrun once to end its ranks, after a stop or if hopeless; kill it after the grace."""
        if not self._signalled and (hopeless or self._stopped_at is not None):
            self._signalled = True
            whole = self._settings.grace_s
            grace = _HOPELESS_GRACE_S if hopeless else max(whole - _COPY_S, whole * _LEAST_SHARE)
            self._deadline = time.monotonic() + grace
            note_stop(self._settings.folder.path)
            self._record("stopping", grace_s=grace)
            process.terminate()
        if time.monotonic() > self._deadline:
            self._deadline = float("inf")
            process.kill()  # the kernel kills its ranks with it
