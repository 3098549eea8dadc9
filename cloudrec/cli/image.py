"""The commands for the trainer's image: build, push."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import context, dry_run_option, output_option
from cloudrec.cli.output import emit

if TYPE_CHECKING:
    from cloudrec.image.builders import Command
    from cloudrec.image.records import BuiltImage

_FABRICS = ("plain", "efa", "ib", "gcp")
_BUILDERS = ("docker", "podman", "buildah")


@click.group()
def image() -> None:
    """Build and push the trainer's image."""


@image.command()
@click.option(
    "--fabric",
    type=click.Choice(_FABRICS),
    default="plain",
    show_default=True,
    help="What the nodes talk by: efa (AWS), ib (Azure ND), gcp (GKE A3), plain for TCP.",
)
@click.option("--cpu", is_flag=True, help="For nodes without a GPU: a smaller image.")
@click.option("--tag", "name", metavar="NAME:TAG", help="What to call it  [default: cloudrec:VERSION-FABRIC]")
@click.option("--builder", type=click.Choice(_BUILDERS), help="Build with  [default: the first that works]")
@click.option("--base", metavar="IMAGE", help="Another base, with apt and Python 3.11 or newer.")
@click.option(
    "--context",
    "checkout",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A checkout to build from  [default: this cloudrec]",
)
@click.option(
    "--pip-conf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="pip's configuration for the build alone; it is in no layer.",
)
@click.option("--platform", metavar="OS/ARCH", help="For other processors than the clouds' GPU nodes have.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED, metavar="[-- BUILDER FLAGS]")
@dry_run_option
@output_option
def build(
    *,
    fabric: str,
    cpu: bool,
    name: str | None,
    builder: str | None,
    base: str | None,
    checkout: Path | None,
    pip_conf: Path | None,
    platform: str | None,
    flags: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Build the trainer's image with docker, podman or buildah.

    What follows -- goes to the builder as it is.
    """
    from cloudrec.app.image import build_image  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.image.work import BuildWish  # noqa: PLC0415

    wish = BuildWish(
        fabric=fabric,
        device="cpu" if cpu else "cuda",
        name=name,
        base=base,
        context=checkout,
        pip_conf=pip_conf.absolute() if pip_conf is not None else None,
        platform=platform,
        flags=flags,
    )
    shown: list[str] = []

    def decide(command: Command) -> bool:
        shown.append(shlex.join(command.arguments))
        announce(shown[-1])
        return not dry_run

    made = build_image(context(), wish, builder=builder, decide=decide)
    document = {"name": wish.tag, "command": shown[-1], "dry_run": dry_run}
    if made is not None:
        document |= asdict(made)
    text = f"{wish.tag} would be built" if dry_run else f"{wish.tag} is built; next: cloudrec image push"
    emit({"image": document}, text)


@image.command()
@click.argument("name", required=False, metavar="[IMAGE]")
@click.option("--cluster", metavar="NAME", help="Push to this cluster's registry  [default: the only one's]")
@click.option("--repository", metavar="REPO", help="Push there, with the builder's own login.")
@click.option("--tag", metavar="TAG", help="What to call it there  [default: its own tag and its time]")
@dry_run_option
@output_option
def push(
    *, name: str | None, cluster: str | None, repository: str | None, tag: str | None, dry_run: bool
) -> None:
    """Push an image, the one built last by default; `train` then uses it by its digest."""
    from cloudrec.app.image import push_image  # noqa: PLC0415  # `--help` needs none of it

    where: list[str] = []

    def decide(image: BuiltImage, destination: str) -> bool:
        where.append(destination)
        announce(f"{image.name} to {destination}, by {image.builder}")
        return not dry_run

    pushed = push_image(
        context(), name=name, cluster_name=cluster, repository=repository, tag=tag, decide=decide
    )
    if pushed is None:
        emit({"image": {"destination": where[-1], "dry_run": True}}, f"it would be pushed to {where[-1]}")
        return
    document = {**asdict(pushed), "reference": pushed.reference, "dry_run": False}
    emit({"image": document}, f"{pushed.reference}\n`cloudrec train` uses it there by itself")
