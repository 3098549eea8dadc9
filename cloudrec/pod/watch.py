"""Runs torchrun in a pod and watches what it does not tell: how each rank ended.

torchrun starts ranks again as long as it may, whatever they ended with. Here it is judged whether that is of
use; a rendezvous that was lost with the pod that hosts it is looked for again, without giving up what this
node has brought to its disk.
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from cloudrec.launch import _tether, outputs
from cloudrec.launch.verdict import describe, have_stopped
from cloudrec.pod.codes import AGAIN, FINISHED
from cloudrec.pod.judge import (
    Attempt,
    Ending,
    attempts_of,
    crash_in,
    ending_after,
    final_ending,
    spent_ending,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cloudrec.launch.verdict import RankExit
    from cloudrec.pod.settings import PodSettings
    from cloudrec.pod.tee import Tee

_POLL_S = 0.2
_HOPELESS_GRACE_S = 5.0  # for ranks that are ended since another attempt is of no use
_COPY_S = 5.0  # of the grace are kept for the last copy of files, where it is long enough
_LEAST_SHARE = 0.6  # of the grace that ranks get in any case
_SEARCH_S = 1800.0  # for a rendezvous; machines may take long to come back
_SEARCH_PAUSE_S = 1.0
NOTICES = ("stopping: aws:", "stopping: azure:", "stopping: gcp:")


class Watch:
    """One pod's torchrun, started again where its rendezvous was lost.

    Args:
        settings: what the manifest says.
        command: torchrun and what it runs.
        environment: theirs.
        tee: takes what they print.
        tell: writes an event down.
        is_finished: whether other pods have finished the run.
    """

    def __init__(
        self,
        settings: PodSettings,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        tee: Tee,
        tell: Callable[..., None],
        is_finished: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._command = list(command)
        self._environment = dict(environment)
        self._tee = tee
        self._tell = tell
        self._is_finished = is_finished
        self._stopped_at: float | None = None  # monotonic
        self._told_to_end = False
        self._deadline = float("inf")  # monotonic time at which what still runs is killed
        self._crashes: dict[int, RankExit] = {}
        self._errors: dict[int, str] = {}
        self._judged = -1  # the newest attempt whose end is known
        self._restarting = False
        self._spared = _tether.children()  # what was there before torchrun is not its

    def stop(self) -> None:
        """Have the ranks end; called from a signal's handler."""
        if self._stopped_at is None:
            self._stopped_at = time.monotonic()

    def seconds_left(self) -> float:
        """Return how long until this pod is killed; infinity when nobody has told it to stop."""
        if self._stopped_at is None:
            return float("inf")
        return self._stopped_at + self._settings.grace_s - 0.5 - time.monotonic()

    def run(self) -> Ending:
        """Start torchrun, and return how the pod is to end."""
        self._tee.listen()
        give_up = time.monotonic() + _SEARCH_S
        while True:
            begun = len(self._attempts())
            ending = self._once()
            if len(self._attempts()) > begun:
                give_up = time.monotonic() + _SEARCH_S
            if ending.code != AGAIN or self._told_to_end or time.monotonic() > give_up:
                return ending
            if self._is_finished():
                return Ending(code=FINISHED, cause="the other pods have finished the run")
            self._restarting = True
            self._tell("restarting", attempt=len(self._attempts()), cause=ending.cause)
            self._tee.say(f"{ending.cause}: looking for it again")
            if self._stopped_within(_SEARCH_PAUSE_S):
                return ending_after(self._attempts(), AGAIN, stopped=True)

    def _stopped_within(self, seconds: float) -> bool:
        give_up = time.monotonic() + seconds
        while self._stopped_at is None and time.monotonic() < give_up:
            time.sleep(_POLL_S)
        return self._stopped_at is not None

    def _once(self) -> Ending:
        """Run torchrun once, to its end."""
        process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=self._tee.descriptor,
            stderr=self._tee.descriptor,
        )
        verdict: Ending | None = None
        while process.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
            _tether.reap(spared=[process.pid, *self._spared])
            if self._settings.parent and os.getppid() != self._settings.parent:
                self.stop()  # nobody is left who would end this pod
            attempts = self._attempts()
            ended = self._note_ends(attempts)
            verdict = verdict or self._verdict(attempts)
            if verdict is None and self._stopped_at is None:
                self._tell_restarts(attempts, ended)
            self._end_in_time(process, hopeless=verdict is not None)
        _tether.kill_children(spared=self._spared)
        attempts = self._attempts()
        self._note_ends(attempts)
        verdict = verdict or self._verdict(attempts)
        return verdict or ending_after(attempts, process.returncode, stopped=self._stopped_at is not None)

    def _attempts(self) -> list[Attempt]:
        return attempts_of(self._settings.folder.ledger.read(), launch=self._settings.launch)

    def _verdict(self, attempts: Sequence[Attempt]) -> Ending | None:
        """Return how the pod must end whatever torchrun would do; None to let it go on."""
        final = final_ending(attempts, self._errors)
        if final or self._stopped_at is not None:
            return final
        spent = spent_ending(attempts, self._crashes, self._errors, max_restarts=self._settings.max_restarts)
        return spent or self._leaving(attempts)

    def _leaving(self, attempts: Sequence[Attempt]) -> Ending | None:
        """Return the end of a pod whose machine is announced to go, once its ranks have stopped for that."""
        last = attempts[-1] if attempts else None
        if last is None or not last.ranks or not have_stopped(last.exits, world_size=len(last.ranks)):
            return None
        for rank in last.ranks:
            for line in outputs.read_tail(self._settings.folder.rank_log(rank)).splitlines()[-20:]:
                if line.startswith(NOTICES):
                    return Ending(code=AGAIN, cause=f"this machine is about to go: {line}")
        return None

    def _note_ends(self, attempts: Sequence[Attempt]) -> list[Attempt]:
        """Remember who crashed in the attempts that are over since the last call, and return those."""
        ended = [each for each in attempts if each.number > self._judged and each.is_over]
        for attempt in ended:
            self._judged = attempt.number
            crash = crash_in(attempt, self._error_of)
            if crash:
                self._crashes[attempt.number] = crash
                self._errors[attempt.number] = self._error_of(crash.rank) or ""
        return ended

    def _tell_restarts(self, attempts: Sequence[Attempt], ended: Sequence[Attempt]) -> None:
        """Write down that ranks are started again, and later that they are at work."""
        for attempt in ended:
            crash = self._crashes.get(attempt.number)
            self._restarting = True
            cause = (
                describe(crash, error=self._errors[attempt.number] or None)
                if crash
                else "other ranks were lost, or stopped"
            )
            self._tell("restarting", attempt=attempt.number + 1, cause=cause)
        newest = attempts[-1] if attempts else None
        if self._restarting and newest and newest.number > self._judged:
            self._restarting = False
            self._tell("running", attempt=newest.number)

    def _error_of(self, rank: int) -> str | None:
        return outputs.last_error(self._settings.folder.rank_log(rank))

    def _end_in_time(self, process: subprocess.Popen[bytes], *, hopeless: bool) -> None:
        """Tell torchrun to end its ranks, once, when that is due; kill it when the time is up."""
        if not self._told_to_end and (hopeless or self._stopped_at is not None):
            self._told_to_end = True
            whole = self._settings.grace_s
            grace = _HOPELESS_GRACE_S if hopeless else max(whole - _COPY_S, whole * _LEAST_SHARE)
            self._deadline = time.monotonic() + grace
            self._tell("stopping", grace_s=grace)
            process.terminate()
        if time.monotonic() > self._deadline:
            self._deadline = float("inf")
            process.kill()  # everything below dies with it
