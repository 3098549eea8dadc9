"""The first process of a pod: `python -m cloudrec.pod agent -- TORCHRUN...`; `Agent` tells its life."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, DataError, PreflightError, StorageError, UsageError
from cloudrec.launch import _tether
from cloudrec.launch.place import Place, open_place
from cloudrec.launch.verdict import BAD_CONFIG, BAD_DATA
from cloudrec.pod import lead, ready
from cloudrec.pod.codes import AGAIN, CRASHED, FINISHED, UNFIT
from cloudrec.pod.command import Command
from cloudrec.pod.judge import Ending
from cloudrec.pod.keeper import Keeper
from cloudrec.pod.settings import TERMINATION_LOG, PodSettings
from cloudrec.pod.tee import Tee
from cloudrec.pod.watch import Watch

if TYPE_CHECKING:
    from types import FrameType

_LIMIT = 4096  # bytes of a termination message that the kubelet keeps
_LAST_COPY_S = 60.0  # for the last copy to RESULTS, when nobody is in a hurry
_LAST_RESULTS_S = 600.0  # and where it holds what the run was for
_STATES = {FINISHED: "succeeded", AGAIN: "interrupted"}


class StopRequestedError(Exception):
    """SIGTERM came before torchrun had been started."""


def main(arguments: list[str]) -> int:
    """Run the pod to its end; return the code to end with."""
    options, words = _parse(arguments)
    settings = PodSettings.from_environment(os.environ)
    if options.work:
        settings = replace(settings, work=options.work)
    if options.grace_s:
        settings = replace(settings, grace_s=options.grace_s)
    code = Agent(settings, words, termination_log=options.termination_log).run()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(code)  # a download that was broken off is not waited for
    return code


class Agent:
    """One pod, from its start to its end.

    Args:
        settings: what the manifest says.
        words: the command to start: torchrun and what follows.
        termination_log: where the kubelet looks for the cause of the end; its usual place when left out.
    """

    def __init__(
        self, settings: PodSettings, words: list[str], *, termination_log: Path | None = None
    ) -> None:
        self._settings = settings
        self._words = words
        outside = None if not TERMINATION_LOG.exists() else TERMINATION_LOG  # of Kubernetes there is none
        self._termination_log = termination_log or outside
        self._tee: Tee | None = None
        self._watch: Watch | None = None
        self._place: Place | None = None
        self._keeper: Keeper | None = None
        self._early_stop = False

    def run(self) -> int:
        """Make ready, train, keep what there is; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        _tether.adopt_orphans()
        try:
            ready.make_folders(self._settings)
        except StorageError as error:
            return self._end(Ending(code=CRASHED, cause=_words(error)))
        with Tee(self._settings.folder.agent_log, prefix="[agent] ", kept="[rank ") as tee:
            self._tee = tee
            try:
                ending = self._train(tee)
            except StopRequestedError:
                ending = Ending(code=AGAIN, cause="told to stop before the trainer had started")
            except CloudrecError as error:
                ending = Ending(code=_code_of(error), cause=_words(error))
            _tether.kill_children()
            return self._end(ending)

    def _train(self, tee: Tee) -> Ending:
        settings = self._settings
        command = Command.parse(self._words)
        if settings.results:
            self._place = open_place(settings.results)
            if self._is_finished():
                return Ending(code=FINISHED, cause="the run has finished already")
            self._keeper = Keeper(settings.folder, self._place, pod=settings.pod, say=self._say)
        self._tell("started", pid=os.getpid(), pod=settings.pod, node=settings.node, command=self._words)
        if self._keeper:
            self._keeper.start()
        environment = {**os.environ, **ready.rank_environment(settings)}
        if settings.profile:
            environment |= ready.source_profile(settings.profile, environment)
        if settings.gpus or settings.fabric != "none":
            from cloudrec.pod.check import assert_fit  # noqa: PLC0415 - what nodes without GPUs need not load

            assert_fit(settings, environment, root=Path("/"), say=self._say)
        command = ready.point_to_data(command, settings, self._say)
        command = command.with_setting("output_dir", str(settings.folder.path))
        self._watch = Watch(
            settings,
            command.words(),
            environment,
            tee=tee,
            tell=self._tell,
            is_finished=self._is_finished,
        )
        if self._early_stop:
            raise StopRequestedError
        return self._watch.run()

    def _is_finished(self) -> bool:
        return self._place is not None and lead.is_finished(self._place, launch=self._settings.launch)

    def _end(self, ending: Ending) -> int:
        """Say how it ended, keep it, and leave word for the kubelet."""
        cause = ending.cause
        state = _STATES.get(ending.code, "failed")
        self._tell(state, cause=cause or None, exit_code=ending.code)
        if cause:
            self._say(f"{state}: {cause}" if ending.code == FINISHED else f"{state} ({ending.code}): {cause}")
        if self._keeper:
            left = self._settings.grace_s / 2 if self._early_stop else float("inf")
            left = self._watch.seconds_left() if self._watch else left
            patience = _LAST_RESULTS_S if ending.code == FINISHED else _LAST_COPY_S
            within = min(patience, max(left, 1.0))
            if not self._keeper.finish(within_s=within) and ending.code == FINISHED:
                # no failure: another pod would wait in vain for those that have finished
                ending = Ending(code=FINISHED, cause="finished, but its last files could not be kept")
                self._say(f"WARNING: {ending.cause} in {within:g} s")
        self._leave_word(ending)
        return self._settings.again_code if ending.code == AGAIN else ending.code

    def _leave_word(self, ending: Ending) -> None:
        if self._termination_log is not None:
            with suppress(OSError):
                self._termination_log.write_bytes(ending.cause.encode()[:_LIMIT])

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._watch is not None:
            self._watch.stop()
            return
        first, self._early_stop = not self._early_stop, True
        if first:
            raise StopRequestedError

    def _say(self, text: str) -> None:
        if self._tee is None:
            print(f"[agent] {text}", flush=True)
        else:
            self._tee.say(text)

    def _tell(self, event: str, **details: object) -> None:
        """Write an event down; a full disk ends nothing here."""
        try:
            self._settings.folder.ledger.append(event, launch=self._settings.launch, **details)
        except StorageError as error:
            self._say(f"warning: {error.message}")


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    position = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m cloudrec.pod agent", allow_abbrev=False)
    parser.add_argument("--work", type=Path, help="folder to write to [/cloudrec]")
    parser.add_argument("--grace-s", type=float, help="seconds between SIGTERM and the kill [30]")
    parser.add_argument(
        "--termination-log", type=Path, help="where the kubelet looks for the cause [/dev/termination-log]"
    )
    options = parser.parse_args(arguments[:position])
    words = arguments[position + 1 :]
    if not words:
        raise UsageError("the agent needs torchrun's command after --")
    return options, words


def _code_of(error: CloudrecError) -> int:
    if isinstance(error, DataError):
        return BAD_DATA
    if isinstance(error, PreflightError):
        return UNFIT
    return BAD_CONFIG if isinstance(error, UsageError) else CRASHED


def _words(error: CloudrecError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
