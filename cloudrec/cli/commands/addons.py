"""The commands for what a Kubernetes cluster needs beside its nodes: addons list, install, remove."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.interrupted import ClusterInHand, in_hand
from cloudrec.cli.options import (
    CommandGroup,
    cluster_option,
    confirm,
    context,
    dry_run_option,
    output_option,
    provider_option,
    yes_option,
)
from cloudrec.cli.output import columns, emit, next_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cloudrec.kubernetes.addons.manage import Installed
    from cloudrec.spec.models import ClusterSpec


@click.group(cls=CommandGroup)
def addons() -> None:
    """Show, install and remove device plugins, volumes, operators and queues on a cluster."""


@addons.command("list", short_help="List the add-ons of a cluster.")
@cluster_option
@provider_option
@output_option
def show(cluster: str | None, provider: str | None) -> None:
    """List the add-ons of a cluster, including those that others installed."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    _emit(app.installed(context(), _chosen(provider, cluster)))


@addons.command(short_help="Install or upgrade an add-on, or all that the cluster needs.")
@click.argument("name", required=False)
@cluster_option
@provider_option
@click.option("--sha256", metavar="HASH", default="", help="SHA-256 of the release that you have reviewed.")
@click.option("--force", is_flag=True, help="Take over objects that exist and are not cloudrec's.")
@dry_run_option
@yes_option
@output_option
def install(
    name: str | None,
    cluster: str | None,
    provider: str | None,
    sha256: str,
    *,
    force: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Install or upgrade the add-on NAME (default: all that the cluster needs)."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    chosen = _chosen(provider, cluster)
    what = ", ".join(name for name in app.wanted(context(), chosen, name)) or "nothing"
    announce(f"{'would install' if dry_run else 'installs'} on cluster {chosen.title!r}: {what}")
    if dry_run:
        _emit(app.installed(context(), chosen))
        next_step("the same command without --dry-run installs them")
        return
    confirm("Continue?", yes=yes)
    in_hand(ClusterInHand(app=context(), name=chosen.title, provider=chosen.provider).messages)
    _emit(app.install(context(), chosen, name, sha256=sha256, force=force))
    next_step(f"`cloudrec doctor --cluster {chosen.title}` checks that runs can use them")


@addons.command(short_help="Remove an add-on that cloudrec has installed.")
@click.argument("name")
@cluster_option
@provider_option
@click.option(
    "--force", is_flag=True, help="Remove the add-on even if that deletes custom resources of its kinds."
)
@yes_option
@output_option
def remove(name: str, cluster: str | None, provider: str | None, *, force: bool, yes: bool) -> None:
    """Remove the add-on NAME, if cloudrec has installed it."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    chosen = _chosen(provider, cluster)
    confirm(f"Remove {name} from cluster {chosen.title!r}?", yes=yes)
    in_hand(ClusterInHand(app=context(), name=chosen.title, provider=chosen.provider).messages)
    _emit(app.uninstall(context(), chosen, name, force=force))
    next_step(f"`cloudrec addons install --cluster {chosen.title}` installs what the cluster needs")


def _chosen(provider: str | None, cluster: str | None) -> ClusterSpec:
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    return app.choose(context(), provider_name=provider, cluster_name=cluster)


def _emit(found: Sequence[Installed]) -> None:
    rows = [
        (
            each.name,
            each.version or None,
            each.newest,
            "cloudrec" if each.is_ours else f"others ({each.by})",
            "whole" if each.is_whole else "INCOMPLETE: install it again",
        )
        for each in found
    ]
    text = columns(("ADD-ON", "VERSION", "NEWEST", "INSTALLED BY", "STATE"), rows) if rows else "none"
    emit({"addons": [asdict(each) for each in found]}, text)
