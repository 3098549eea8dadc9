"""`cloudrec init`: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from cloudrec.cli.console import announce
from cloudrec.cli.output import next_step
from cloudrec.errors import UsageError
from cloudrec.home import write_atomically


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default="cloudrec.yaml")
@click.option("--print", "to_stdout", is_flag=True, help="Print to stdout instead of a file.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def init(path: Path, *, to_stdout: bool, force: bool) -> None:
    """Write a commented cloudrec.yaml to PATH."""
    from importlib.resources import files  # noqa: PLC0415  # `--help` needs none of it

    text = files("templates").joinpath("specs/cloudrec.yaml").read_text(encoding="utf-8")
    if to_stdout:
        click.echo(text, nl=False)
        return
    if path.is_dir():
        path = path / "cloudrec.yaml"
    if path.exists() and not force:
        raise UsageError(f"{path} exists", remedy="choose another path, or overwrite it with --force")
    if not path.parent.is_dir():
        raise UsageError(f"folder {path.parent} does not exist", remedy=f"mkdir -p {path.parent}")
    write_atomically(path, text)
    announce(f"wrote {path}")
    next_step("`cloudrec up` creates the cluster that it describes")
