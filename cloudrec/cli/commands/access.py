"""The command that shows and changes who reaches a cluster: access."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.interrupted import ClusterInHand, in_hand
from cloudrec.cli.options import (
    cluster_option,
    confirm,
    context,
    dry_run_option,
    load_spec,
    output_option,
    provider_option,
    yes_option,
)
from cloudrec.cli.output import columns, emit, next_step
from cloudrec.cli.plans import plan_text

if TYPE_CHECKING:
    from cloudrec.app import AccessView
    from cloudrec.engine.plan import Plan


@click.command()
@click.argument("who", required=False, metavar="[WHO]")
@cluster_option
@provider_option
@click.option(
    "--force", is_flag=True, help="Make the API private although this machine does not reach it then."
)
@dry_run_option
@yes_option
@output_option
def access(
    who: str | None, cluster: str | None, provider: str | None, *, force: bool, dry_run: bool, yes: bool
) -> None:
    """Show who reaches a cluster's Kubernetes API and storage, or change it to WHO.

    WHO is auto (this machine's public address), private (only the cluster's network), or addresses and
    blocks, separated by commas. The cluster is changed in place; everything else of it stays as it is.

    \b
    Examples:
      cloudrec access
      cloudrec access auto --cluster ads
      cloudrec access auto,198.51.100.0/24
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    if who is None:
        chosen = app.choose(application, provider_name=provider, cluster_name=cluster)
        view = app.access_view(application, chosen)
        emit({"access": _document(view)}, _text(view))
        return
    wanted = load_spec(None, (), {("cluster", "access"): ("WHO", who)}).spec.cluster.access

    in_hand(ClusterInHand(app=application, name=cluster, provider=provider).messages)

    def decide(plan: Plan) -> bool:
        announce(plan_text(plan))
        if not dry_run and plan.changes:
            confirm(f"Change who reaches the cluster to {wanted}?", yes=yes)
        return not dry_run

    chosen = app.recorded(application, app.choose(application, provider_name=provider, cluster_name=cluster))
    app.up(application, chosen.model_copy(update={"access": wanted}), decide=decide, force=force)
    view = app.access_view(
        application, app.choose(application, provider_name=None, cluster_name=chosen.title)
    )
    emit({"access": _document(view), "dry_run": dry_run}, _text(view))
    missing = () if dry_run else app.missing_of(application, chosen.title)
    for each in missing:
        announce(f"cluster {chosen.title!r} is NOT READY: {each.what}: {each.reason}")
    if missing:
        click.get_current_context().exit(1)
    if dry_run:
        next_step("the same command without --dry-run changes it")
    else:
        next_step(f"`cloudrec doctor --cluster {chosen.title}` checks that the cluster can be used")


def _document(view: AccessView) -> dict[str, object]:
    return {
        "cluster": view.cluster,
        "who": view.who,
        "address": view.address or None,
        "is_admitted": view.is_admitted,
    }


def _text(view: AccessView) -> str:
    admitted = {True: "yes", False: "no", None: "unknown"}[view.is_admitted]
    rows = [(view.cluster, view.who, view.address or "unknown", admitted)]
    text = columns(("CLUSTER", "WHO", "THIS MACHINE", "ADMITTED"), rows)
    if view.is_admitted is False and view.who != "private":
        text += f"\n`cloudrec access auto --cluster {view.cluster}` admits this machine"
    return text
