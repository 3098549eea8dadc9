"""`cloudrec train`: launch a run, follow it, and leave it resumable."""

from __future__ import annotations

from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click

from cloudrec.cli.console import announce
from cloudrec.cli.interrupted import RunInHand, in_hand
from cloudrec.cli.options import (
    cluster_option,
    complete_runs,
    confirm,
    context,
    dry_run_option,
    file_option,
    load_spec,
    output_option,
    provider_option,
    refuse_without,
    set_option,
    yes_option,
)
from cloudrec.cli.output import chosen_format, emit, next_step
from cloudrec.cli.run_tables import runs_table
from cloudrec.engine.cost import FREE, price_text
from cloudrec.errors import INTERRUPTED, RunFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from cloudrec.app import AppContext, PreparedRun
    from cloudrec.launchers.base.protocol import LaunchPlan
    from cloudrec.launchers.base.run_folder import RunFolder
    from cloudrec.spec.load import Flags

_NEAR = 0.8  # how like a wrong option must be to one of the command, from 0 to 1
# launcher -> the flags that have an effect only with it
_OF_LAUNCHERS = {
    "ray": ("ray_address",),
    "slurm": ("slurm_host", "partition", "account", "time_limit"),
}


class _TrainCommand(click.Command):
    """A command that names the place of the trainer's flags when one of them is among its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; UsageError for an option that is not known."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            own = {option for each in self.params for option in each.opts if option.startswith("--")}
            near = get_close_matches(name, own, n=1, cutoff=_NEAR)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise UsageError(
                f"there is no option {name!r}",
                remedy=f"{meant}flags of the trainer or of the script follow `--`: "
                f"cloudrec train -- {name} VALUE",
            ) from error


@click.command(cls=_TrainCommand, context_settings={"ignore_unknown_options": False})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[SCRIPT] [-- ARGS]...")
@file_option
@cluster_option
@provider_option
@click.option("--name", help="The run's name  [default: made from the time]")
@click.option(
    "--dataset",
    metavar="URI",
    help="The prepared dataset (the trainer's --dataset_path)  [default: the one pushed last to the cluster]",
)
@click.option(
    "--data-tier",
    type=click.Choice(["auto", "local", "lustre", "bucket"]),
    help="From where the nodes read a dataset in a bucket  [default: auto]",
)
@click.option(
    "--workdir",
    metavar="FOLDER",
    help="With SCRIPT: the folder that is packed, and that it runs in  [default: .]",
)
@click.option(
    "--requirements",
    metavar="FILE",
    help="With SCRIPT: what pip installs for it  [default: requirements.txt of the folder, if there is one]",
)
@click.option(
    "--env", "env", multiple=True, metavar="NAME=VALUE", help="Set a variable in each rank; not for secrets."
)
@click.option(
    "--env-file", multiple=True, metavar="FILE", help="Set the variables of a file of lines NAME=VALUE."
)
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="NAME[=KEY]",
    help="Set a variable from a Kubernetes Secret (KEY is SECRET/KEY), or from your own environment.",
)
@click.option(
    "--launcher", metavar="NAME", help="What starts the processes  [default: the cluster's launcher]"
)
@click.option("--nodes", type=int, metavar="N", help="Number of nodes to train on  [default: all]")
@click.option(
    "--min-nodes", type=int, metavar="N", help="Continue with at least this many if nodes are lost."
)
@click.option(
    "--image",
    metavar="REF",
    help="The trainer's container image  [default: the one last pushed; else pods install the trainer]",
)
@click.option(
    "--allow-tcp",
    is_flag=True,
    default=None,
    help="Train even if GPUs or the fast transport are not found.",
)
@click.option("--ray-address", metavar="URL", help="With --launcher ray: the head, e.g. http://HEAD:8265.")
@click.option(
    "--slurm-host",
    metavar="USER@HOST",
    help="With --launcher slurm: the login node, USER@HOST, used over ssh.",
)
@click.option("--partition", metavar="NAME", help="With --launcher slurm: the partition.")
@click.option("--account", metavar="NAME", help="With --launcher slurm: the account.")
@click.option(
    "--time-limit", metavar="TIME", help="With --launcher slurm: the time limit, in Slurm's format."
)
@click.option(
    "--deadline",
    metavar="TIME",
    help="On a managed cluster: finish in this time, e.g. 30h, with on-demand nodes if needed; needs --work.",
)
@click.option("--work", metavar="TIME", help="With --deadline: how long the run trains, e.g. 24h.")
@click.option(
    "--max-price",
    type=click.FloatRange(min=0, min_open=True),
    metavar="USD",
    help="On a managed cluster: use no node that costs more than this an hour.",
)
@click.option(
    "--regions",
    metavar="A,B",
    help="Move the run to another region when one has no nodes; see docs/managed.md.",
)
@click.option(
    "--nproc-per-node",
    type=int,
    help="Processes per node  [default: one per GPU, or 1; with --resume: as before]",
)
@click.option("--max-restarts", type=int, help="Most restarts after crashes  [default: 3]")
@click.option(
    "--detach", is_flag=True, help="Return once the run has started; it continues without the terminal."
)
@click.option("--resume", metavar="RUN", shell_complete=complete_runs, help="Resume a stopped or failed run.")
@set_option
@dry_run_option
@yes_option
@output_option
def train(
    *,
    words: tuple[str, ...],
    file: Path | None,
    cluster: str | None,
    provider: str | None,
    name: str | None,
    dataset: str | None,
    workdir: str | None,
    requirements: str | None,
    env: tuple[str, ...],
    env_file: tuple[str, ...],
    secrets: tuple[str, ...],
    launcher: str | None,
    nodes: int | None,
    min_nodes: int | None,
    regions: str | None,
    image: str | None,
    allow_tcp: bool | None,
    data_tier: str | None,
    nproc_per_node: int | None,
    max_restarts: int | None,
    resume: str | None,
    settings: tuple[str, ...],
    detach: bool,
    dry_run: bool,
    yes: bool,
    **of_launcher: str | float | None,
) -> int:
    """Launch a run on a cluster and follow it: cloudrec's trainer, or SCRIPT, a torchrun script of yours.

    ARGS, after --, are the trainer's flags, or the script's arguments.

    \b
    cloudrec train --dataset data/prepared --nproc-per-node 2 -- --num_epochs 2
    cloudrec train --nodes 2               with the dataset pushed last
    cloudrec train train.py -- --lr 0.1    your own script, with its folder
    cloudrec train --resume RUN            from its newest checkpoint
    cloudrec train --dry-run -o yaml       what would be applied to the cluster
    cloudrec train --resume RUN --nproc-per-node 1  other processes, same steps

    A run saves checkpoints by default; `-- --checkpoint_interval 10m` sets how often.
    Ctrl-C stops the run gracefully: it writes a checkpoint, and --resume continues from it.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    flags: Flags = {
        ("cluster", "name"): ("--cluster", cluster),
        ("cluster", "provider"): ("--provider", provider),
        ("train", "name"): ("--name", name),
        ("train", "workdir"): ("--workdir", workdir),
        ("train", "requirements"): ("--requirements", requirements),
        ("train", "launcher"): ("--launcher", launcher),
        ("train", "nodes"): ("--nodes", nodes),
        ("train", "min_nodes"): ("--min-nodes", min_nodes),
        ("train", "regions"): ("--regions", regions),
        ("train", "image"): ("--image", image),
        ("train", "allow_tcp"): ("--allow-tcp", allow_tcp),
        ("train", "data_tier"): ("--data-tier", data_tier),
        ("train", "nproc_per_node"): ("--nproc-per-node", nproc_per_node),
        ("train", "max_restarts"): ("--max-restarts", max_restarts),
        ("trainer", "dataset_path"): ("--dataset", dataset),
        **_settings_of(of_launcher),
        **_variables_of(env, env_file, secrets),
    }
    # A flag of the trainer begins with a dash; the trainer takes no other words.
    has_script = bool(words) and not words[0].startswith("-")
    if has_script:
        flags = {**flags, ("train", "script"): ("SCRIPT", words[0])}
    arguments = words[1:] if has_script else words

    def decide(launch: PreparedRun) -> bool:
        _announce_places(launch)
        if dry_run:
            announce(_plan_text(launch.plan))
        elif launch.hourly_usd != FREE:
            price = price_text(launch.hourly_usd)
            confirm(f"The price of its nodes is {price} an hour. Continue?", yes=yes)
        plans.append(launch)
        return not dry_run

    plans: list[PreparedRun] = []
    application = context()
    if not dry_run:
        in_hand(RunInHand(app=application, name=resume or name).messages)
    if resume is not None:
        _refuse_with_resume(flags, arguments, settings)
        folder = app.resume(application, resume, nproc_per_node=nproc_per_node, decide=decide)
    else:
        loaded = load_spec(file, settings, flags)
        _refuse_of_other_launchers(of_launcher, loaded.spec.train.launcher)
        folder = app.train(application, loaded, arguments, decide=decide)
    if folder is None:
        _emit_plan(plans[0])
        next_step("the same command without --dry-run launches it")
        return 0
    in_hand(RunInHand(app=application, name=folder.name).messages)
    announce(f"run {folder.name} has started; its files are in {folder.path}")
    if detach:
        return _finish(application, folder.name)
    return _follow(application, folder)


def _announce_places(launch: PreparedRun) -> None:
    """Say from where the nodes read the data, and between which clusters the run may move."""
    if launch.data is not None:
        announce(f"data: {launch.data.line}")
    if launch.spec.elsewhere:
        announce(f"clusters: {', then '.join((launch.spec.cluster, *launch.spec.elsewhere))}")


def _settings_of(given: Mapping[str, str | float | None]) -> Flags:
    """Return the flags of one launcher, as its settings."""
    keys = {"ray_address": "address", "slurm_host": "host"}
    return {
        ("train", "settings", keys.get(name, name)): (f"--{name.replace('_', '-')}", value)
        for name, value in given.items()
    }


def _refuse_of_other_launchers(given: Mapping[str, object], launcher: str | None) -> None:
    """Refuse the flags of a launcher that is not chosen by a flag, a variable or the file."""
    for owner, names in _OF_LAUNCHERS.items():
        if owner != launcher:
            found = [f"--{name.replace('_', '-')}" for name in names if given[name] is not None]
            refuse_without(f"--launcher {owner}", found)


def _variables_of(env: Sequence[str], env_file: Sequence[str], secrets: Sequence[str]) -> Flags:
    """Return the flags with variables and references to secrets, as keys of the spec."""
    flags: dict[tuple[str, ...], tuple[str, object]] = {}
    for text in env:
        name, equals, value = text.partition("=")
        if not equals or not name:
            # Without a name it may be a value that slipped in, so it is not shown.
            shown = f" {name}" if name.isidentifier() else ""
            raise UsageError(f"--env{shown} is not NAME=VALUE", remedy="as in --env BATCHES=100")
        flags["train", "env", name] = (f"--env {name}", value)
    if env_file:
        flags["train", "env_file"] = ("--env-file", list(env_file))
    for text in secrets:
        name, equals, source = text.partition("=")
        if not name or (equals and not source):
            raise UsageError(
                "--secret is not NAME or NAME=KEY", remedy="as in --secret WANDB_API_KEY=wandb/api-key"
            )
        flags["train", "secrets", name] = (f"--secret {name}", source or name)
    return flags


def _follow(application: AppContext, folder: RunFolder) -> int:
    """Print the run's lines to stderr until it ends; Ctrl-C stops it gracefully."""
    try:
        _print_lines(folder)
    except KeyboardInterrupt:
        announce(
            "stopping: the run writes a checkpoint and ends (press Ctrl-C again to return without waiting)"
        )
        _stop(application, folder)
        _finish(application, folder.name)
        return INTERRUPTED
    return _finish(application, folder.name)


def _print_lines(folder: RunFolder) -> None:
    from cloudrec.observe.status import watch_run  # noqa: PLC0415  # `--help` needs none of it

    for item in watch_run(folder, tail=0):
        if isinstance(item, str):
            announce(item)
        elif not item.state.is_final:
            announce(f"{folder.name}: {item.state}" + (f" ({item.cause})" if item.cause else ""))


def _stop(application: AppContext, folder: RunFolder) -> None:
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    try:
        app.stop_run(application, folder.name)
    except UsageError:
        return  # the run ended in the meantime


def _finish(application: AppContext, name: str) -> int:
    """Print the run and turn its state into an exit code."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    (view,) = app.runs(application, name)
    if view.state == "FAILED":
        raise RunFailedError(
            f"run {name} failed: {view.cause or 'unknown cause'}",
            remedy=f"`cloudrec logs {name}` shows its output; `cloudrec train --resume {name}` resumes it",
        )
    emit({"runs": [view.to_json()]}, runs_table([view]))
    if view.state == "INTERRUPTED":
        next_step(f"`cloudrec train --resume {name}` resumes it")
        return INTERRUPTED
    if view.state == "SUCCEEDED":
        next_step(
            f"`cloudrec report {name}` writes a page about it", f"`cloudrec fetch {name}` copies its results"
        )
    else:
        next_step(
            f"`cloudrec logs {name} --follow` follows it", f"`cloudrec stop {name}` stops it gracefully"
        )
    return 0


def _refuse_with_resume(flags: Flags, arguments: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Refuse flags that a resumed run cannot change: all but the number of its processes."""
    given = [
        flag
        for path, (flag, value) in flags.items()
        if value is not None and path[0] != "cluster" and path != ("train", "nproc_per_node")
    ]
    given += ["--set"] if settings else []
    given += [arguments[0]] if arguments else []
    if given:
        raise UsageError(
            f"{given[0]} cannot be changed with --resume: a resumed run keeps its configuration",
            remedy="omit it, or launch a new run without --resume",
        )


def _emit_plan(launch: PreparedRun) -> None:
    """Print what would be done; with YAML, print exactly the manifests, for other tools."""
    plan = launch.plan
    if plan.objects and chosen_format() == "yaml":
        from cloudrec.kubernetes import manifests  # noqa: PLC0415  # only for this

        click.echo(manifests.text(plan.objects), nl=False)
        return
    data = asdict(launch.data) if launch.data is not None else None
    emit({"dry_run": True, "launch": _plan_document(plan), "data": data}, "")


def _plan_document(plan: LaunchPlan) -> dict[str, Any]:
    document = {
        "command": list(plan.command),
        "environment": dict(plan.environment),
        "files": dict(plan.files),
    }
    return document | ({"objects": list(plan.objects)} if plan.objects else {})


def _plan_text(plan: LaunchPlan) -> str:
    import shlex  # noqa: PLC0415  # only for a dry run

    lines = ["would write:"]
    for name, text in plan.files.items():
        lines += [f"  {name}:", *(f"    {line}" for line in text.splitlines())]
    lines += ["would set:", *(f"  {key}={value}" for key, value in sorted(plan.environment.items()))]
    if plan.objects:
        told = [f"  {each['kind']} {each['metadata']['name']}" for each in plan.objects]
        lines += ["would apply these objects (-o yaml prints them in full):", *told]
    return "\n".join([*lines, "would run:", f"  {shlex.join(plan.command)}"])
