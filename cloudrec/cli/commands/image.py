"""The commands for the trainer's image: build, push."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import CommandGroup, context, dry_run_option, output_option
from cloudrec.cli.output import emit, next_step
from cloudrec.image.bootstrap import PARTS
from cloudrec.providers.base.facts import PLAIN_IMAGE, all_facts, image_targets

if TYPE_CHECKING:
    from cloudrec.image.builders import BuildCommand
    from cloudrec.image.records import BuiltImage

_BUILDERS = ("docker", "podman", "buildah")


def _fabrics() -> str:
    machines = {fabric.image: fabric.machines for facts in all_facts() for fabric in facts.fabrics}
    return ", ".join(f"{image} ({those})" for image, those in machines.items())


@click.group(cls=CommandGroup)
def image() -> None:
    """Build and push the trainer's image."""


@image.command()
@click.option(
    "--fabric",
    type=click.Choice(image_targets()),
    default=PLAIN_IMAGE,
    show_default=True,
    help=f"The nodes' fabric: {_fabrics()}, {PLAIN_IMAGE} for TCP.",
)
@click.option("--cpu", is_flag=True, help="Build a smaller image for nodes without a GPU.")
@click.option(
    "--tag", "name", metavar="NAME:TAG", help="The image's name  [default: cloudrec:VERSION-FABRIC]"
)
@click.option(
    "--builder", type=click.Choice(_BUILDERS), help="The build tool  [default: the first that works]"
)
@click.option("--base", metavar="IMAGE", help="Another base image, with apt and Python 3.11 or newer.")
@click.option(
    "--context",
    "checkout",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A checkout to build from  [default: this cloudrec]",
)
@click.option(
    "--pip-conf",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="pip's configuration for the build; no layer contains it.",
)
@click.option(
    "--platform",
    metavar="OS/ARCH",
    help="The target platform  [default: the platform of the clouds' GPU nodes]",
)
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

    Flags after -- are passed to the build tool unchanged.
    """
    from cloudrec.app.image import build_image  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.cli.interrupted import in_hand  # noqa: PLC0415  # as above
    from cloudrec.cli.left_behind import ImageInHand  # noqa: PLC0415  # as above
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
    work = ImageInHand()
    in_hand(work.messages)

    def decide(command: BuildCommand) -> bool:
        shown.append(shlex.join(command.arguments))
        if not dry_run:
            work.name, work.builder = wish.tag, Path(command.arguments[0]).name
        announce(shown[-1])
        return not dry_run

    made = build_image(context(), wish, builder=builder, decide=decide)
    document = {"name": wish.tag, "command": shown[-1], "dry_run": dry_run}
    if made is not None:
        document |= asdict(made)
    emit({"image": document}, f"{wish.tag} {'would be' if dry_run else 'is'} built")
    if dry_run:
        next_step("the same command without --dry-run builds it")
    else:
        next_step("`cloudrec image push` pushes it to a cluster's registry")


@image.command()
@click.option(
    "--part",
    "parts",
    type=click.Choice(PARTS),
    multiple=True,
    help="Only the packages of this part; can be repeated  [default: all]",
)
@output_option
def sbom(*, parts: tuple[str, ...]) -> None:
    """Print what pods install without an image, as a CycloneDX document.

    Every package has its version and the SHA-256 of each file that may be installed. Images
    that you build install the same versions.
    """
    from cloudrec.image.sbom import bill_of_materials  # noqa: PLC0415  # `--help` needs none of it

    document = bill_of_materials(parts or PARTS)
    emit({"sbom": document}, json.dumps(document, indent=2))


@image.command()
@click.argument("name", required=False, metavar="[IMAGE]")
@click.option(
    "--cluster", metavar="NAME", help="Push to this cluster's registry  [default: the only cluster's]"
)
@click.option("--repository", metavar="REPO", help="Push to this repository with the build tool's login.")
@click.option("--tag", metavar="TAG", help="The pushed tag  [default: the image's tag and time]")
@dry_run_option
@output_option
def push(
    *, name: str | None, cluster: str | None, repository: str | None, tag: str | None, dry_run: bool
) -> None:
    """Push an image (default: the one built last). `train` then uses it by its digest."""
    from cloudrec.app.image import push_image  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.cli.interrupted import in_hand  # noqa: PLC0415  # as above
    from cloudrec.cli.left_behind import ImageInHand  # noqa: PLC0415  # as above

    where: list[str] = []
    work = ImageInHand(is_push=True)
    in_hand(work.messages)

    def decide(image: BuiltImage, destination: str) -> bool:
        where.append(destination)
        if not dry_run:
            work.name, work.builder = destination, image.builder
        announce(f"{image.name} to {destination}, by {image.builder}")
        return not dry_run

    pushed = push_image(
        context(), name=name, cluster_name=cluster, repository=repository, tag=tag, decide=decide
    )
    if pushed is None:
        emit({"image": {"destination": where[-1], "dry_run": True}}, f"would be pushed to {where[-1]}")
        next_step("the same command without --dry-run pushes it")
        return
    document = {**asdict(pushed), "reference": pushed.reference, "dry_run": False}
    emit({"image": document}, pushed.reference)
    next_step("`cloudrec train` uses it on that cluster")
