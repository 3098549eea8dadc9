"""The batch script of a launch: this module computes a typed context, and a template places its values."""

from __future__ import annotations

import math
import re
import shlex
import sys
from dataclasses import dataclass, field, fields
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING

from cloudrec.errors import SpecError
from cloudrec.launchers.base.runspec import default_trainer_command
from cloudrec_contract.exit_codes import (
    BAD_CONFIG,
    BAD_DATA,
    FINAL,
    FINISHED,
    RESTARTS_SPENT,
    STOPPED,
    UNFIT_NODE,
)
from cloudrec_contract.layout import checkpoints_uri, run_uri

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2 import Template

    from cloudrec.launchers.base.runspec import RunSpec
    from cloudrec.launchers.slurm.settings import SlurmSettings

_DIRECTIVE = re.compile(r"--[a-z][a-z0-9-]*(=[^\s'\"#\\]+)?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LAST_COPY_S = 5  # of the grace, for the agent's last uploads after the trainer has ended
_CLEAN_END_S = 60  # between the first agent that ends well and the last one
_LONGEST_NOTICE_S = 65535  # sbatch's limit for --signal


@dataclass(frozen=True, kw_only=True)
class JobScript:
    """The values for templates/slurm/job.sh.j2.

    Attributes:
        run: the run's name.
        launch: the number of the launch.
        directives: options of sbatch, as --name or --name=value.
        results: the shared folder of the run.
        environment: variables for the ranks.
        srun: options of srun.
        command: the agent's command, which srun starts on each node.
        max_restarts: how often the script starts the agents again after one was lost.
        requeue: whether the job puts itself back into the queue when Slurm ends it.
        elastic: whether the run continues with fewer nodes.
        needs: a program that the nodes must have; empty for none.
    """

    run: str
    launch: int
    directives: tuple[str, ...]
    results: str
    environment: Mapping[str, str] = field(default_factory=dict)
    srun: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    max_restarts: int = 3
    requeue: bool = True
    elastic: bool = False
    needs: str = ""

    def text(self) -> str:
        """Return the script."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        codes = {
            "final_codes": (*FINAL, RESTARTS_SPENT),
            "run_codes": (BAD_CONFIG, BAD_DATA),
            "finished": FINISHED,
            "stopped": STOPPED,
            "unfit": UNFIT_NODE,
            "spent": RESTARTS_SPENT,
        }
        return _template().render(values | codes)


def job_script(spec: RunSpec, settings: SlurmSettings, *, root: str, launch: int, gpus: int) -> JobScript:
    """Return the batch script of one launch; SpecError for a name that cannot be a shell variable.

    Args:
        spec: the run.
        settings: its settings.
        root: the folder on the cluster below which runs write.
        launch: the number of the launch.
        gpus: GPUs to request for each node.
    """
    for name in spec.environment:
        if not _NAME.fullmatch(name):
            raise SpecError(f"train.env.{name} cannot be the name of a shell's variable")
    results = run_uri(root, spec.name)
    apptainer = bool(settings.container_image) and settings.container_runtime == "apptainer"
    return JobScript(
        run=spec.name,
        launch=launch,
        directives=_directives(spec, settings, results=results, launch=launch, gpus=gpus),
        results=results,
        environment=_environment(spec, settings, results=results, launch=launch, gpus=gpus),
        srun=_srun(spec, settings, root),
        command=(
            *_container(settings, root, gpus=gpus),
            *_agent(spec, settings, results=results),
        ),
        max_restarts=spec.max_restarts,
        elastic=_is_elastic(spec),
        requeue=settings.requeue,
        needs="apptainer" if apptainer else "",
    )


def python_of(settings: SlurmSettings) -> str:
    """Return the Python for the nodes: the setting, the container's, the login node's, or this one."""
    if settings.python:
        return settings.python
    if settings.container_image:
        return "python"
    return "python3" if settings.host else sys.executable


def _directives(
    spec: RunSpec, settings: SlurmSettings, *, results: str, launch: int, gpus: int
) -> tuple[str, ...]:
    grace_s = min(math.ceil(spec.stop_grace_s), _LONGEST_NOTICE_S)
    kind = f"{settings.gpu_type}:" if settings.gpu_type else ""
    chosen: dict[str, object] = {
        "job-name": f"{spec.name}.{launch}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "time": settings.time_limit,
        "constraint": settings.constraint,
        "nodes": f"{spec.fewest_nodes}-{spec.nodes}" if spec.min_nodes else spec.nodes,
        "ntasks-per-node": 1,
        "cpus-per-task": settings.cpus_per_node or spec.nproc_per_node,
        "gres": f"gpu:{kind}{gpus}" if gpus else "",
        "mem": f"{settings.memory_gib}G" if settings.memory_gib else "",
        "exclusive": settings.exclusive,
        "signal": f"TERM@{grace_s}",  # to the agents, this many seconds before the time limit
        "requeue": settings.requeue,
        "no-requeue": not settings.requeue,
        "no-kill": spec.fewest_nodes < spec.nodes,
        "output": f"{results}/slurm/job.{launch}.out",
        "open-mode": "append",
        "chdir": results,
        **settings.extra,
    }
    return tuple(
        f"--{name}" if value is True else f"--{name}={value}" for name, value in chosen.items() if value
    )


def _environment(
    spec: RunSpec, settings: SlurmSettings, *, results: str, launch: int, gpus: int
) -> dict[str, str]:
    return {
        "CLOUDREC_RUN": spec.name,
        "CLOUDREC_LAUNCH": str(launch),
        "CLOUDREC_CLUSTER": spec.cluster,
        "CLOUDREC_RESULTS": results,
        "CLOUDREC_GPUS": str(gpus),
        "CLOUDREC_ALLOW_TCP": str(int(spec.allow_tcp)),
        "CLOUDREC_MAX_RESTARTS": str(spec.max_restarts),
        "CLOUDREC_GRACE_S": f"{spec.stop_grace_s:g}",
        **({"CLOUDREC_SCRATCH": settings.scratch} if settings.scratch else {}),
        "PYTHONUNBUFFERED": "1",
        "PYTHONSAFEPATH": "1",
        **spec.environment,
    }


def _is_elastic(spec: RunSpec) -> bool:
    """Whether the run continues with fewer nodes."""
    return spec.fewest_nodes < spec.nodes


def _srun(spec: RunSpec, settings: SlurmSettings, root: str) -> tuple[str, ...]:
    """Return srun's options.

    A crash of an agent ends the others at once, unless the run continues with fewer nodes. After a clean end,
    the others have time to end as well.
    """
    elastic = _is_elastic(spec)
    patience = math.ceil(spec.stop_grace_s) + _CLEAN_END_S
    words = [
        *("--ntasks-per-node=1", f"--cpus-per-task={settings.cpus_per_node or spec.nproc_per_node}"),
        *("--unbuffered", f"--wait={0 if elastic else patience}"),
        f"--kill-on-bad-exit={int(not elastic)}",
        *(("--no-kill",) if elastic else ()),
    ]
    if settings.container_image and settings.container_runtime == "pyxis":
        mounts = ",".join(part for part in (f"{root}:{root}", settings.container_mounts) if part)
        words += [f"--container-image={settings.container_image}", f"--container-mounts={mounts}"]
    return tuple(words)


def _container(settings: SlurmSettings, root: str, *, gpus: int) -> tuple[str, ...]:
    if not settings.container_image or settings.container_runtime != "apptainer":
        return ()
    mounts = [f"{root}:{root}", *settings.container_mounts.split(",")]
    binds = (word for mount in mounts if mount for word in ("--bind", mount))
    return ("apptainer", "exec", *(("--nv",) if gpus else ()), *binds, settings.container_image)


def _agent(spec: RunSpec, settings: SlurmSettings, *, results: str) -> tuple[str, ...]:
    python = python_of(settings)
    pod = (python, "-P", "-m", "cloudrec.agent")
    trainer = spec.trainer_command
    default = default_trainer_command()
    if trainer[0] == default[0]:
        trainer = (python, *trainer[1:])
    return (
        *(*pod, "slurm", "--", "torchrun"),
        *("--nnodes", spec.node_range),
        *("--nproc-per-node", str(spec.nproc_per_node), "--max-restarts", str(spec.max_restarts)),
        *("--rdzv-backend", "c10d", "--no-python", *pod, "rank", "--", *trainer),
        *("--config", f"{results}/trainer.yaml"),
        *("--checkpoint_dir", spec.trainer.checkpoint_dir or checkpoints_uri(results)),
        *("--stop_grace_seconds", str(max(1, math.ceil(spec.stop_grace_s) - _LAST_COPY_S))),
        *spec.trainer_flags,
    )


def _directive(text: str) -> str:
    """Return an option for an #SBATCH line; SpecError if it has a character that sbatch would interpret."""
    if not _DIRECTIVE.fullmatch(text):
        raise SpecError(
            f"sbatch's option {text!r} contains a space, a quote, a backslash or a #",
            remedy="choose a folder or a name without them",
        )
    return text


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415 - only what renders needs it

    environment = Environment(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 - this is no HTML
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"quote": lambda value: shlex.quote(str(value)), "directive": _directive}
    source = resources.files("templates").joinpath("slurm", "job.sh.j2").read_text(encoding="utf-8")
    return environment.from_string(source)
