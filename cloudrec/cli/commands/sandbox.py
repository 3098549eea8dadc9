"""The commands that rehearse on stand-ins: sandbox run, sandbox stop."""

from __future__ import annotations

from pathlib import Path

import click

from cloudrec.cli.options import CommandGroup


@click.group(cls=CommandGroup)
def sandbox() -> None:
    """Rehearse on a cloud's stand-in, without an account."""


@sandbox.command(short_help="Run a command on the stand-in of a cloud.")
@click.argument("cloud")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True, max=1e6),
    metavar="N",
    help="Simulated seconds per real second  [default: 600; kubernetes: 1]",
)
@click.option(
    "--quota",
    type=click.Choice(["granted", "none"]),
    default="granted",
    show_default=True,
    help="Whether the account has GPU quota. A new account has none.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1  [default: a free one]"
)
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for cloudrec's state  [default: a temporary one, removed at the end]",
)
@click.option(
    "--no-pods", is_flag=True, help="No Kubernetes API server behind the clusters; no add-ons are installed."
)
def run(
    cloud: str,
    command: tuple[str, ...],
    *,
    no_pods: bool,
    speed: float | None,
    quota: str,
    port: int,
    home: Path | None,
) -> None:
    """Run COMMAND on the stand-in of CLOUD: aws, azure, gcp or kubernetes.

    The stand-in starts first and ends with COMMAND, whose exit code is returned. COMMAND gets the stand-in's
    endpoints and credentials. The variables and files by which the clouds' tools find a real account are
    hidden from it. If the stand-in does not start, COMMAND is not run.

    A Kubernetes API server is behind the clusters of aws, azure and gcp: `up` installs add-ons, and the pods
    of `train` run as processes of this machine, on the CPU (Linux only; not with --no-pods). `data push` and
    `train` use the stand-in's object store. The stand-in of kubernetes has two nodes, and the bucket
    s3://sandbox.

    To order faults, COMMAND needs the token in CLOUDREC_SANDBOX_TOKEN.
    """
    from cloudrec.app.stand_ins import become  # noqa: PLC0415  # `--help` needs none of it

    options = ["--quota", quota, "--port", str(port)]
    if speed is not None:
        options += ["--speed", repr(speed)]
    if no_pods:
        options.append("--no-pods")
    if home is not None:
        options += ["--home", str(home.absolute())]
    become(["run", *options, cloud, "--", *command])


@sandbox.command(short_help="End the stand-ins that `cloudrec --sandbox` started.")
@click.argument("cloud", required=False)
def stop(cloud: str | None) -> None:
    """End the stand-in of CLOUD that `cloudrec --sandbox` started, or all of them.

    Its account is gone then, with all clusters in it.
    """
    from cloudrec.app.stand_ins import become  # noqa: PLC0415  # `--help` needs none of it

    become(["stop", *([cloud] if cloud else [])])
