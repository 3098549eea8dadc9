"""The commands of notifications: notify test, notify status."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from cloudrec.cli.options import (
    CommandGroup,
    cluster_option,
    context,
    file_option,
    load_spec,
    output_option,
    set_option,
)
from cloudrec.cli.output import columns, emit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cloudrec.app import NotificationView


@click.group(cls=CommandGroup)
def notify() -> None:
    """Send a test notification, or show what was sent.

    The section `notify` of the spec names the receivers.
    """


@notify.command("test", short_help="Send a test notification.")
@file_option
@cluster_option
@set_option
@output_option
def send(file: Path | None, cluster: str | None, settings: tuple[str, ...]) -> None:
    """Send a test from this machine, or with --cluster by that cluster's keeper.

    Exit code 1 if a receiver could not be reached.
    """
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    spec = load_spec(file, settings, {}).spec
    chosen = None
    if cluster is not None:
        chosen = app.choose(application, provider_name=None, cluster_name=cluster)
    found = app.send_test(application, spec.notify, chosen)
    _emit(found)
    if any(each.why for each in found):
        click.get_current_context().exit(1)


@notify.command("status", short_help="Show what was sent, waits, or was given up.")
@click.argument("name", required=False, metavar="[RUN|CLUSTER]")
@output_option
def status(name: str | None) -> None:
    """Show the notifications of all runs and clusters, or of one: what was sent, waits, or was given up."""
    from cloudrec import app  # noqa: PLC0415  # `--help` needs none of it

    _emit(app.notifications(context(), name))


def _emit(found: Sequence[NotificationView]) -> None:
    headers = ("SENDER", "EVENT", "RUN", "TO", "STATE", "TRIES", "WHY")
    rows = [
        (each.sender, each.event, each.run or None, each.channel, each.state, each.tries, each.why or None)
        for each in found
    ]
    text = columns(headers, rows) if rows else "no notifications"
    emit({"notifications": [asdict(each) for each in found]}, text)
