"""The command that shows clusters and runs in a browser."""

from __future__ import annotations

import os
import webbrowser
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from cloudrec.cli.console import announce
from cloudrec.cli.options import context
from cloudrec.errors import MissingExtraError
from cloudrec.home import make_private, write_atomically

if TYPE_CHECKING:
    from pathlib import Path

_PORT = 8642
_NEEDED = ("starlette", "uvicorn")


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help=f"The port; 0 takes a free one  [default: {_PORT}, or a free one if it is taken]",
)
@click.option("--no-browser", is_flag=True, help="Print the link and open no browser.")
def ui(*, port: int | None, no_browser: bool) -> None:
    """Show clusters and runs in a browser, as they change, until Ctrl-C.

    \b
    cloudrec ui                            open the page
    cloudrec ui --no-browser --port 8642   on a machine that you reach by ssh

    The page is on this machine only (127.0.0.1), and opens only by the link that is printed. From another
    machine, forward the same port: ssh -L 8642:127.0.0.1:8642 HOST.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    for module in _NEEDED:
        if find_spec(module) is None:
            raise MissingExtraError("ui", module=module)
    from cloudrec.app.live.server import serve_page  # noqa: PLC0415  # `--help` needs none of it

    application = context()
    door = application.home.root / "ui" / f"open-{os.getpid()}.html"

    def opened(link: str) -> None:
        click.echo(link)
        announce("Ctrl-C ends the page; runs and clusters stay")
        if not no_browser:
            _open(link, door)

    try:
        serve_page(application, port=port, usual=_PORT, opened=opened)
    finally:
        door.unlink(missing_ok=True)


def _open(link: str, door: Path) -> None:
    """Open the link in a browser by a private file: other users see the arguments of processes."""
    make_private(door.parent)
    text = (
        f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(link)}"><title>cloudrec</title>'
    )
    write_atomically(door, text)
    try:
        if not webbrowser.open(door.as_uri()):
            announce("no browser could be opened: open the link yourself")
    except webbrowser.Error as error:
        announce(f"no browser could be opened ({error}): open the link yourself")
