"""The first process of a pod: `python -m cloudrec.agent agent -- TORCHRUN...`; `Agent` shows its phases."""

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

from cloudrec.agent.exits.classify import Ending
from cloudrec.agent.lease import leader
from cloudrec.agent.lease.host import RendezvousHost
from cloudrec.agent.settings import TERMINATION_LOG, PodSettings
from cloudrec.agent.supervisor import prepare
from cloudrec.agent.supervisor.command import TorchrunCommand
from cloudrec.agent.supervisor.exporter import serve_pod
from cloudrec.agent.supervisor.script_files import ScriptFiles, script_files
from cloudrec.agent.supervisor.tee import Tee
from cloudrec.agent.supervisor.watch import TorchrunWatch
from cloudrec.agent.upload.uploader import Keeper
from cloudrec.errors import CloudrecError, DataError, PreflightError, StorageError, UsageError
from cloudrec.launchers.base.results_store import Place, open_place
from cloudrec.process import tether
from cloudrec_contract.exit_codes import (
    BAD_CONFIG,
    BAD_DATA,
    FAILED,
    FINISHED,
    RESTARTS_SPENT,
    STOPPED,
    UNFIT_NODE,
)

if TYPE_CHECKING:
    from types import FrameType

_LIMIT = 4096  # bytes of a termination message that the kubelet keeps
_LAST_COPY_S = 60.0  # for the last copy to RESULTS, if the pod has no deadline
_LAST_RESULTS_S = 600.0  # the same for a run that has finished, since the copy has its results
_STATES = {FINISHED: "succeeded", STOPPED: "interrupted"}


class StopRequestedError(Exception):
    """SIGTERM arrived before torchrun was started."""


def main(arguments: list[str]) -> int:
    """Run the pod to its end; return its exit code."""
    options, words = _parse(arguments)
    settings = PodSettings.from_environment(os.environ)
    if options.work:
        settings = replace(settings, work=options.work)
    if options.grace_s:
        settings = replace(settings, grace_s=options.grace_s)
    code = Agent(settings, words, termination_log=options.termination_log).run()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.stdout.flush()
        os._exit(code)  # a normal exit would wait for the threads of an interrupted download
    return code


class Agent:
    """One pod, from its start to its end.

    Args:
        settings: the pod's settings.
        words: the command to start: torchrun and its arguments.
        termination_log: the file for the termination message; None for the kubelet's default.
    """

    def __init__(
        self, settings: PodSettings, words: list[str], *, termination_log: Path | None = None
    ) -> None:
        self._settings = settings
        self._words = words
        default = TERMINATION_LOG if TERMINATION_LOG.exists() else None  # it exists only in Kubernetes
        self._termination_log = termination_log or default
        self._tee: Tee | None = None
        self._watch: TorchrunWatch | None = None
        self._place: Place | None = None
        self._keeper: Keeper | None = None
        self._script: ScriptFiles | None = None
        self._host: RendezvousHost | None = None
        self._early_stop = False

    def run(self) -> int:
        """Prepare the node, train, upload the files; return the exit code."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_stop)
        tether.adopt_orphans()
        try:
            prepare.make_folders(self._settings)
        except StorageError as error:
            return self._end(Ending(code=FAILED, cause=_words(error)))
        with Tee(self._settings.folder.agent_log, prefix="[agent] ", kept="[rank ") as tee:
            self._tee = tee
            try:
                ending = self._train(tee)
            except StopRequestedError:
                ending = Ending(code=STOPPED, cause="stopped on request before the trainer had started")
            except CloudrecError as error:
                ending = Ending(code=_code_of(error), cause=_words(error))
            tether.kill_children()
            return self._end(ending)

    def _train(self, tee: Tee) -> Ending:
        settings = self._settings
        command = TorchrunCommand.parse(self._words)
        if settings.results:
            self._place = open_place(settings.results)
            if self._is_finished():
                return Ending(code=FINISHED, cause="the run has finished already")
            self._keeper = Keeper(settings.folder, self._place, pod=settings.pod, say=self._say)
        if self._keeper:
            self._keeper.start()
        lost = self._lost_before()
        if lost > settings.max_restarts:
            return Ending(
                code=RESTARTS_SPENT,
                cause=f"its container was killed {lost} times, for example because memory ran out; the limit "
                f"is {settings.max_restarts}",
            )
        serve_pod(settings, cluster=os.environ.get("CLOUDREC_CLUSTER", ""), say=self._say)
        self._record("started", pid=os.getpid(), pod=settings.pod, node=settings.node, command=self._words)
        if lost:
            cause = f"its container was killed, {lost} of {settings.max_restarts} times, and starts again"
            self._record("restarting", attempt=lost, cause=cause)
            self._say(cause)
        environment = {**os.environ, **prepare.rank_environment(settings)}
        if settings.profile:
            environment |= prepare.source_profile(settings.profile, environment)
        if settings.gpus or settings.fabric != "none":
            from cloudrec.agent.checks.node import assert_fit  # noqa: PLC0415 - not needed on nodes without GPUs

            assert_fit(settings, environment, root=Path("/"), say=self._say)
        command = prepare.point_to_data(command, settings, self._say)
        command = command.with_setting("output_dir", str(settings.folder.path))
        command = prepare.keep_near(command, settings)
        environment |= prepare.rank_key(settings, command, self._say)
        self._script = script_files(command, settings, self._say)
        if self._script:
            self._script.prepare()
        self._host = self._host_of(command)
        self._watch = TorchrunWatch(
            settings,
            command.words,
            environment,
            tee=tee,
            record=self._record,
            is_finished=self._is_finished,
            has_begun=self._has_begun,
            host=self._host,
        )
        if self._early_stop:
            raise StopRequestedError
        return self._watch.run()

    def _lost_before(self) -> int:
        """Return how often this pod's container was killed: starts of an agent without an end."""
        if not self._settings.in_place:
            return 0
        events = self._settings.folder.ledger.read()
        own = [each.event for each in events if each.launch == self._settings.launch]
        return own.count("started") - sum(own.count(state) for state in (*_STATES.values(), "failed"))

    def _host_of(self, command: TorchrunCommand) -> RendezvousHost | None:
        """Return what finds the rendezvous if the run may continue without its first pod, else None."""
        own = command.own_endpoint()
        if not self._settings.elects_host or self._place is None or not own:
            return None
        settings, first = self._settings, command.endpoint()
        # The manifest names the first pod by the short name that its Service gives it.
        host, port = first.rpartition(":")[0], first.rpartition(":")[2]
        is_first = own == first or own.startswith(f"{host}.")
        return RendezvousHost(
            self._place,
            launch=settings.launch,
            pod=settings.pod,
            endpoint=own,
            first=own if is_first else f"{host}:{port}",
            say=self._say,
        )

    def _is_finished(self) -> bool:
        return self._place is not None and leader.is_finished(self._place, launch=self._settings.launch)

    def _has_begun(self) -> bool:
        return self._place is None or leader.has_begun(self._place, launch=self._settings.launch)

    def _end(self, ending: Ending) -> int:
        """Record the end, upload the last files, write the termination message; return the exit code."""
        cause = ending.cause
        state = _STATES.get(ending.code, "failed")
        self._record(state, cause=cause or None, exit_code=ending.code)
        if cause:
            self._say(f"{state}: {cause}" if ending.code == FINISHED else f"{state} ({ending.code}): {cause}")
        if self._script:
            self._script.finish(ending, within_s=self._seconds_left(ending))
        if self._keeper:
            within = self._seconds_left(ending)
            if not self._keeper.finish(within_s=within) and ending.code == FINISHED:
                # Not a failure: a new pod would wait in vain for the others, which have finished.
                ending = Ending(code=FINISHED, cause="finished, but its last files could not be kept")
                self._say(f"WARNING: {ending.cause} in {within:g} s")
        self._end_with_others(ending)
        self._write_termination_log(ending)
        return self._settings.again_code if ending.code == STOPPED else ending.code

    def _seconds_left(self, ending: Ending) -> float:
        """Return the seconds for the last copies of files."""
        left = self._settings.grace_s / 2 if self._early_stop else float("inf")
        left = self._watch.seconds_left() if self._watch else left
        patience = _LAST_RESULTS_S if ending.code == FINISHED else _LAST_COPY_S
        return min(patience, max(left, 1.0))

    def _end_with_others(self, ending: Ending) -> None:
        """Wait until the leader of a finished run has uploaded its files; let another pod host.

        The Job of an elastic run is complete once enough pods have succeeded, and ends all others at once.
        """
        settings = self._settings
        if self._place and self._watch and settings.elects_host and ending.code == FINISHED:
            within_s = min(_LAST_RESULTS_S, self._watch.seconds_left())
            leader.end_together(self._place, settings, within_s=within_s, is_stopped=lambda: self._is_stopped)
        if self._host is not None:
            self._host.release()

    @property
    def _is_stopped(self) -> bool:
        return self._early_stop or (self._watch is not None and self._watch.is_stopped)

    def _write_termination_log(self, ending: Ending) -> None:
        if self._termination_log is not None:
            with suppress(OSError):
                self._termination_log.write_bytes(ending.cause.encode()[:_LIMIT])

    def _on_stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._watch is not None:
            self._watch.stop()
            return
        # A second signal must not interrupt the handling of the first one's exception.
        first, self._early_stop = not self._early_stop, True
        if first:
            raise StopRequestedError

    def _say(self, text: str) -> None:
        if self._tee is None:
            print(f"[agent] {text}", flush=True)
        else:
            self._tee.say(text)

    def _record(self, event: str, **details: object) -> None:
        """Append an event to the ledger; if the disk refuses it, print a warning."""
        try:
            self._settings.folder.ledger.append(event, launch=self._settings.launch, **details)
        except StorageError as error:
            self._say(f"warning: {error.message}")


def _parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    position = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m cloudrec.agent agent", allow_abbrev=False)
    parser.add_argument("--work", type=Path, help="folder to write to [/cloudrec]")
    parser.add_argument("--grace-s", type=float, help="seconds between SIGTERM and the kill [30]")
    parser.add_argument(
        "--termination-log", type=Path, help="file for the termination message [/dev/termination-log]"
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
        return UNFIT_NODE
    return BAD_CONFIG if isinstance(error, UsageError) else FAILED


def _words(error: CloudrecError) -> str:
    return f"{error.message} ({error.remedy})" if error.remedy else error.message


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
