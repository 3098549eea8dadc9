"""The launcher `ray`: a job in an existing Ray cluster, or in one that is started for the run.

    cloudrec train -> Ray job (cloudrec.agent drive, on the head) -> an actor a node -> its agent -> torchrun

The results are written to storage that every node sees, and copied from there to the run's folder.
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
from cloudrec.launchers.base import launches, results
from cloudrec.launchers.base.ledger import last_launch
from cloudrec.launchers.base.protocol import LaunchPlan, RunHandle
from cloudrec.launchers.base.script.prepare import deliver
from cloudrec.launchers.local.launcher import take_lock
from cloudrec.launchers.ray import checks, job
from cloudrec.launchers.ray.client import Cluster, UnknownJobError, UnreachableHeadError, ray_version
from cloudrec.launchers.ray.head import head_of
from cloudrec.launchers.ray.observer import RayObserver
from cloudrec.launchers.ray.settings import RaySettings, named_head
from cloudrec.launchers.ray.stored_lines import StoredLines
from cloudrec_contract.safe_json import safe_object

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cloudrec.launchers.base.protocol import RunStatus, Skipped
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.launchers.base.runspec import RunSpec

_POLL_S = 0.5
_KILL_MARGIN_S = 30.0  # beyond the grace, for Ray, the driver and the agents


@dataclass(frozen=True, kw_only=True)
class RayLauncher:
    """Runs the trainer's ranks on the nodes of a Ray cluster.

    Args:
        name: the value of `--launcher`.
        reads_local_files: True: the nodes share a file system with this machine, or are this machine.
        nodes_of_cluster: False: the nodes are the Ray cluster's.
    """

    name: str = "ray"
    reads_local_files: bool = True
    nodes_of_cluster: bool = False
    _memories: dict[str, RayObserver] = field(default_factory=dict, repr=False, compare=False)

    def preflight(self, spec: RunSpec) -> None:
        """Check the files to send, the storage, and the cluster's connection and versions."""
        checks.check_spec(spec)
        head = named_head(spec)
        checks.refuse_secrets(spec, head)
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
        """Submit the job, or submit another one that resumes from the newest checkpoint."""
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
            deliver(run, spec)
            handle = self._send(run, spec, cluster, launch)
        except UnreachableHeadError:
            raise  # the launch stays open, and the next submit continues it
        except CloudrecError as error:
            run.ledger.append("failed", launch=launch, cause=error.message)
            raise
        self._memories.pop(str(run.path), None)
        return handle

    def state(self, run: RunFolder) -> RunStatus:
        """Return the run's state; the head is not called if the ledger has the end of the launch."""
        return self._memories.setdefault(str(run.path), RayObserver(run)).status()

    def stop(self, run: RunFolder, *, grace_s: float | None = None) -> RunStatus:
        """Stop the Ray job, whose driver ends all agents; wait until it has ended."""
        spec = run.spec()
        status = RayObserver(run).status()
        launches.refuse_over(run, status)
        launch = last_launch(run.ledger.read())
        grace = spec.stop_grace_s if grace_s is None else grace_s
        run.ledger.append("stop_requested", launch=launch, grace_s=grace)
        try:
            Cluster(head_of(run, spec)).stop(job.submission_id(spec, launch))
        except UnknownJobError:
            return RayObserver(run).status()
        return self._await_final(run, within_s=max(grace, spec.stop_grace_s) + _KILL_MARGIN_S)

    def logs(self, run: RunFolder, *, rank: int, follow: bool, tail: int | None = None) -> Iterator[str]:
        """Yield one rank's lines, from all nodes that it ran on."""
        reader = StoredLines(run.spec(), rank=rank, is_over=lambda: self.state(run).state.is_final)
        return reader.lines(follow=follow, tail=tail)

    def collect(self, run: RunFolder, *, checkpoints: bool = False) -> Sequence[Skipped]:
        """Copy the run's files from its storage into its folder."""
        return results.bring(run, run.spec(), everything=True, checkpoints=checkpoints)

    def _send(self, run: RunFolder, spec: RunSpec, cluster: Cluster, launch: int) -> RunHandle:
        gpus = checks.gpus_a_node(spec, cluster)
        with job.staged(spec, launch=launch, gpus=gpus) as folder:
            sent = cluster.submit(
                entrypoint=job.entrypoint(spec),
                runtime_env=job.runtime_env(spec, folder),
                submission_id=job.submission_id(spec, launch),
                metadata={"cloudrec_run": spec.name, "cloudrec_results": spec.results},
            )
        handle = RunHandle(id=f"ray://{cluster.head.address}/{sent}", launch=launch)
        run.ledger.append("started", launch=launch, id=handle.id)
        return handle

    def _refuse_alive(self, run: RunFolder) -> None:
        events = run.ledger.read()
        own = {event.event for event in events if event.launch == last_launch(events)}
        if "started" not in own:
            return
        status = RayObserver(run).status()
        launches.refuse_alive(run, status)

    def _await_final(self, run: RunFolder, *, within_s: float) -> RunStatus:
        deadline, observer = time.monotonic() + within_s, RayObserver(run)
        while not (status := observer.status()).state.is_final:
            if time.monotonic() > deadline:
                raise RunFailedError(
                    f"the run {run.name!r} was asked to stop, and is still {status.state}: {status.cause}",
                    remedy="`cloudrec status` shows when it has ended",
                )
            time.sleep(_POLL_S)
        self._memories.pop(str(run.path), None)
        return status


LAUNCHER = RayLauncher()


def _with_storage(spec: RunSpec) -> RunSpec:
    """Return the spec with the storage that its settings name."""
    named = RaySettings.of(spec).storage
    return replace(spec, storage=named) if named else spec


def _await_old_head(run: RunFolder) -> None:
    """Wait for the end of the earlier launch's head, which takes some seconds after the end of the run."""
    give_up = time.monotonic() + _KILL_MARGIN_S
    while run.is_alive and time.monotonic() < give_up:
        time.sleep(_POLL_S)


def _start_own_head(run: RunFolder) -> None:
    """Start a Ray head that ends with the run; PreflightError if it does not start."""
    _await_old_head(run)
    lock = take_lock(run)
    make_private(run.logs)
    ours, its = os.pipe()
    module = ("-P", "-m", "cloudrec.launchers.ray.host", str(run.path), str(lock), str(its))
    try:
        with run.agent_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, *module],
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
        text = answers.read()
    process.returncode = 0  # it outlives this process: suppress Popen's warning that it still runs
    answer = (
        safe_object(text) if text else {"message": f"its process ended: see {run.agent_log}", "remedy": None}
    )
    if answer:
        raise PreflightError(str(answer["message"]), remedy=answer["remedy"])
