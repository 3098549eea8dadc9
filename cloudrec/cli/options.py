"""What several commands have: options, each with one spelling, one help text and one parser, and groups."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cloudrec.cli.console import announce
from cloudrec.cli.output import FORMATS, choose_format
from cloudrec.errors import DeclinedError, SpecError, UsageError
from cloudrec.home import Home, refuse_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from click.shell_completion import CompletionItem

    from cloudrec.app import AppContext
    from cloudrec.cli.work import Work
    from cloudrec.spec.load import Flags, Loaded
    from cloudrec.spec.models import ClusterSpec

F = TypeVar("F", bound="Callable[..., Any]")


class CommandGroup(click.Group):
    """A group that offers a command for one that is not known, in the words of the root command."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first word names; click.UsageError if there is none."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            from cloudrec.spec.suggest import did_you_mean  # noqa: PLC0415  # only after a slip

            raise click.UsageError(
                f"there is no command {args[0]!r}; {did_you_mean(args[0], self.commands)}", ctx=ctx
            )
        return super().resolve_command(ctx, args)


def _choose(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    choose_format(value)
    return value


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMATS),
    default="table",
    envvar="CLOUDREC_OUTPUT",
    show_default=True,
    callback=_choose,
    expose_value=False,
    is_eager=True,
    help="Format of stdout; wide is a table with all columns. Messages are written to stderr.",
)
file_option = click.option(
    "-f",
    "--file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="CLOUDREC_FILE",
    help="The spec file  [default: ./cloudrec.yaml if it exists]",
)
cluster_option = click.option(
    "--cluster", metavar="NAME", envvar="CLOUDREC_CLUSTER", help="The cluster's name."
)
provider_option = click.option(
    "--provider", metavar="NAME", envvar="CLOUDREC_PROVIDER", help="The cluster's provider."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")
yes_option = click.option(
    "-y", "--yes", is_flag=True, envvar="CLOUDREC_YES", help="Do not ask for confirmation."
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set any key of the spec, e.g. train.max_restarts=5.",
)


def complete_runs(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a run's name from the existing runs."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  # only while completing

    runs = Home.from_environment(os.environ).runs
    names = sorted(path.name for path in runs.iterdir()) if runs.is_dir() else []
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def context(work: Work | None = None) -> AppContext:
    """Return the context of the use cases, with progress on stderr.

    Args:
        work: shows the steps of the command; None prints each as a line.
    """
    from cloudrec.app import AppContext  # noqa: PLC0415  # `--help` needs none of it

    home = Home.from_environment(os.environ)
    refuse_shared(home.root, os.environ)
    if work is not None:
        return AppContext(home=home, environment=os.environ, report=work.line, step=work.step)
    return AppContext(home=home, environment=os.environ, report=announce)


@contextmanager
def at_work() -> Iterator[Work]:
    """Yield the progress of a command that changes a cluster, for `context`."""
    from cloudrec.cli.work import working  # noqa: PLC0415  # `--help` needs none of it
    from cloudrec.engine.clock import Clock  # noqa: PLC0415  # as above

    with working(Home.from_environment(os.environ), Clock.of(os.environ)) as work:
        yield work


def load_spec(file: Path | None, settings: tuple[str, ...], flags: Flags) -> Loaded:
    """Load the spec from flags, the environment and the file, in this precedence; None is an absent flag."""
    from cloudrec.spec.load import load  # noqa: PLC0415  # `--help` needs none of it

    given = {path: (flag, value) for path, (flag, value) in flags.items() if value is not None}
    return load(file, environment=os.environ, flags={**_parsed(settings), **given}, folder=Path.cwd())


def provider_spec(provider: str | None) -> ClusterSpec:
    """Return the cluster section of the spec, for a command with a provider only."""
    return load_spec(None, (), {("cluster", "provider"): ("PROVIDER", provider)}).spec.cluster


def refuse_without(needed: str, given: Sequence[str]) -> None:
    """Refuse options that have no effect, since the option that they are for is not given.

    Args:
        needed: that option, such as `--launcher ray`.
        given: the options that were given, such as `--ray-address`.
    """
    if given:
        raise UsageError(
            f"{given[0]} is only for {needed}", remedy=f"add {needed}, or leave {', '.join(given)} out"
        )


def _parsed(settings: tuple[str, ...]) -> dict[tuple[str, ...], tuple[str, Any]]:
    from cloudrec.spec.load import scalar  # noqa: PLC0415  # `--help` needs none of it

    parsed: dict[tuple[str, ...], tuple[str, Any]] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        path = tuple(key.split("."))
        if not equals or not all(path):
            raise SpecError(f"--set {setting} is not KEY=VALUE", remedy="as in --set train.max_restarts=5")
        parsed[path] = (f"--set {key}", scalar(value, path))
    return parsed


def confirm(question: str, *, yes: bool) -> None:
    """Ask on stderr; DeclinedError when the answer is no, or stdin is not a terminal."""
    if yes:
        return
    try:
        agreed = click.confirm(question, default=False, err=True)
    except click.exceptions.Abort as abort:
        click.echo("", err=True)
        if isinstance(abort.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None  # click raises the same error for Ctrl-C and the end of input
        raise DeclinedError("no answer was given; nothing was done", remedy="answer, or pass --yes") from None
    if not agreed:
        raise DeclinedError("declined: nothing was done")
