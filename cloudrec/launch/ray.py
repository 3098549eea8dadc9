"""The launcher `ray`: a job in a Ray cluster, which others may use too, or in one of the run's own.

    cloudrec train -> Ray job (cloudrec.pod drive, on the head) -> an actor a node -> its agent -> torchrun

What the run leaves goes to storage that every node sees, and is brought into the run's folder from there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cloudrec.errors import CloudrecError, PreflightError, RunFailedError
from cloudrec.home import make_private, storage_error, write_atomically
from cloudrec.launch._ray import checks, job
from cloudrec.launch._ray.client import Cluster, UnknownJobError, UnreachableHeadError, ray_version
from cloudrec.launch._ray.lines import RankLines
from cloudrec.launch._ray.observer import Observer
from cloudrec.launch._ray.place import head_of
from cloudrec.launch._ray.settings import RaySettings, named_head
from cloudrec.launch._remote import launches, results
from cloudrec.launch.base import LaunchPlan, RunHandle
from cloudrec.launch.ledger import last_launch
from cloudrec.launch.local import take_lock
from cloudrec.launch.outputs import flag_value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cloudrec.launch.base import RunStatus
    from cloudrec.launch.folder import RunFolder
    from cloudrec.launch.runspec import RunSpec

_POLL_S = 0.5
_KILL_MARGIN_S = 30.0  # what Ray, driver and agents may need beyond the grace


@dataclass(frozen=True, kw_only=True)
class RayLauncher:
    """Runs the trainer's ranks on the nodes of a Ray cluster.

    Args:
        name: what `--launcher` calls it.
        reads_local_files: paths are taken as they are here: nodes share a file system, or are this machine.
        nodes_of_cluster: no: the nodes are Ray's.
    """

    name: str = "ray"
    reads_local_files: bool = True
    nodes_of_cluster: bool = False
    _memories: dict[str, Observer] = field(default_factory=dict, repr=False, compare=False)

    def preflight(self, spec: RunSpec) -> None:
        """Refuse what cannot be sent, and a cluster that is not there, or another version than here."""
        checks.check_spec(spec)
        head = named_head(spec)
        checks.check_storage(spec, head)
        if head:
            checks.check_head(head)
        else:
            ray_version()

    def dry_run(self, run: RunFolder, spec: RunSpec) -> LaunchPlan:
        """Return the job that the next launch submits."""
        spec = _with_storage(spec)
        launch = launches.next_launch(run)
        gpus = RaySettings.of(spec).gpus_per_node
        document = job.launch_document(spec, launch=launch, gpus=gpus or 0)
        environment = job.runtime_env(spec, "a copy of the working directory")["env_vars"]
        return LaunchPlan(
            command=tuple(job.entrypoint(spec).split()),
            environment=environment,
            files={
                f"{job.FOLDER}/launch.json": json.dumps(document, indent=2),
                f"{job.FOLDER}/trainer.yaml": job.config_text(spec),
            },
        )

    def submit(self, run: RunFolder) -> RunHandle:
        """Send the job, or send it again to go on from the newest checkpoint."""
        spec = _with_storage(run.spec())
        launch = launches.next_launch(run)
        self._refuse_alive(run)
        run.write_spec(spec)
        if last_launch(run.ledger.read()) < launch:
            run.ledger.append("submitted", launch=launch, launcher=self.name)
        try:
            if named_head(spec) is None:
                _start_own_head(run)
            head = head_of(run, spec)
            cluster = Cluster(head)
            write_atomically(run.config_file, job.config_text(spec))
            results.forget_summary(run, spec)
            handle = self._send(run, spec, cluster, launch)
        except UnreachableHeadError:
            raise  # submitting again goes on from here
        except CloudrecError as error:
            run.ledger.append("failed", launch=launch, cause=error.message)
            raise
        self._memories.pop(str(run.path), None)
        return handle

    def state(self, run: RunFolder) -> RunStatus:
        """Ask the head; a launch whose end is written down is not asked about any more."""
        return self._memories.setdefault(str(run.path), Observer(run)).status()

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Have Ray tell the job's driver to end, which asks all agents to; wait until it has."""
        spec = run.spec()
        status = Observer(run).status()
        launches.refuse_over(run, status)
        launch = last_launch(run.ledger.read())
        grace = spec.stop_grace_s if grace_s is None else grace_s
        run.ledger.append("stop_requested", launch=launch, grace_s=grace)
        try:
            Cluster(head_of(run, spec)).stop(job.submission_id(spec, launch))
        except UnknownJobError:
            return Observer(run).status()
        return self._await_final(run, within_s=max(grace, spec.stop_grace_s) + _KILL_MARGIN_S)

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield one rank's lines, from whichever node it has been on."""
        reader = RankLines(run.spec(), rank=rank, is_over=lambda: self.state(run).state.is_final)
        return reader.lines(follow=follow, tail=tail)

    def collect(self, run: RunFolder) -> None:
        """Bring all that the run has left in its storage into its folder."""
        results.bring(run, run.spec(), everything=True)

    def _send(self, run: RunFolder, spec: RunSpec, cluster: Cluster, launch: int) -> RunHandle:
        gpus = checks.gpus_a_node(spec, cluster)
        with job.staged(spec, launch=launch, gpus=gpus) as folder:
            sent = cluster.submit(
                entrypoint=job.entrypoint(spec),
                runtime_env=job.runtime_env(spec, folder),
                submission_id=job.submission_id(spec, launch),
                metadata={"cloudrec_run": spec.name, "cloudrec_results": job.results_of(spec)},
            )
        handle = RunHandle(id=f"ray://{cluster.head.address}/{sent}", launch=launch)
        run.ledger.append("started", launch=launch, id=handle.id)
        return handle

    def _refuse_alive(self, run: RunFolder) -> None:
        events = run.ledger.read()
        own = {event.event for event in events if event.launch == last_launch(events)}
        if "started" not in own:
            return
        status = Observer(run).status()
        launches.refuse_alive(run, status)

    def _await_final(self, run: RunFolder, *, within_s: float) -> RunStatus:
        deadline, observer = time.monotonic() + within_s, Observer(run)
        while not (status := observer.status()).state.is_final:
            if time.monotonic() > deadline:
                raise RunFailedError(
                    f"the run {run.name!r} was asked to stop, and is still {status.state}: {status.cause}",
                    remedy="`cloudrec status` tells when it has ended",
                )
            time.sleep(_POLL_S)
        self._memories.pop(str(run.path), None)
        return status


LAUNCHER = RayLauncher()


def _with_storage(spec: RunSpec) -> RunSpec:
    """Return the spec with the storage that its settings name, and its checkpoints' place spelt out."""
    named = RaySettings.of(spec).storage
    spec = replace(spec, storage=named) if named else spec
    told = flag_value(spec.trainer_flags, "checkpoint_dir") or spec.trainer_config.get("checkpoint_dir")
    if told:
        return spec
    config = {**spec.trainer_config, "checkpoint_dir": f"{job.results_of(spec)}/checkpoints"}
    return replace(spec, trainer_config=config)


def _await_old_head(run: RunFolder) -> None:
    """Let the head of the launch before end, which takes some seconds after the run's end is known."""
    give_up = time.monotonic() + _KILL_MARGIN_S
    while run.is_alive and time.monotonic() < give_up:
        time.sleep(_POLL_S)


def _start_own_head(run: RunFolder) -> None:
    """Start a Ray head for this run alone, which ends with it; PreflightError when it does not start."""
    _await_old_head(run)
    lock = take_lock(run)
    make_private(run.logs)
    ours, its = os.pipe()
    module = ("-m", "cloudrec.launch._ray.host", str(run.path), str(lock), str(its))
    try:
        with run.agent_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", *module],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(lock, its),
            )
    except OSError as error:
        os.close(ours)
        raise storage_error(run.agent_log, error) from error
    finally:
        os.close(its)
        os.close(lock)
    with os.fdopen(ours, "rb") as answers:
        told = answers.read()
    process.returncode = 0  # it outlives us on purpose: no warning that it still runs
    answer = (
        json.loads(told) if told else {"message": f"its process ended: see {run.agent_log}", "remedy": None}
    )
    if answer:
        raise PreflightError(str(answer["message"]), remedy=answer["remedy"])
