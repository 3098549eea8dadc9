"""The root command, and the one place where an error becomes a message and an exit code."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from cloudrec.errors import INTERRUPTED, CloudrecError

_PROGRAM = "cloudrec"
_SANDBOX = "--sandbox"
_BROKEN_PIPE = 141  # what a shell reports for a program whose reader has gone

# name -> (module:attribute, the line in --help). The line is here so that help imports no command.
_COMMANDS = {
    "init": ("cloudrec.cli.commands.init:init", "Write a commented cloudrec.yaml."),
    "up": ("cloudrec.cli.commands.clusters:up", "Create or converge a cluster."),
    "train": ("cloudrec.cli.commands.train:train", "Launch a training run, or resume one."),
    "status": ("cloudrec.cli.commands.runs:status", "Show clusters and runs."),
    "queue": ("cloudrec.cli.commands.runs:queue", "Show the runs of managed clusters that wait."),
    "logs": ("cloudrec.cli.commands.runs:logs", "Print the output of a rank of a run."),
    "stop": ("cloudrec.cli.commands.runs:stop", "Stop a run gracefully: checkpoint, then end."),
    "ui": ("cloudrec.cli.commands.pages.ui:ui", "Show clusters and runs in a browser."),
    "report": ("cloudrec.cli.commands.runs:report", "Write an HTML report of a run."),
    "fetch": ("cloudrec.cli.commands.runs:fetch", "Copy the results of a run to a local folder."),
    "serve": ("cloudrec.cli.commands.serve:serve", "Score raw rows with an exported model, over HTTP."),
    "plan": ("cloudrec.cli.commands.plan:plan", "Show where a run fits, how fast it is, and what it costs."),
    "cost": ("cloudrec.cli.commands.cost:cost", "Show what clusters and runs have cost."),
    "access": ("cloudrec.cli.commands.access:access", "Show or change who reaches a cluster."),
    "down": ("cloudrec.cli.commands.clusters:down", "Remove everything that was created."),
    "leaks": ("cloudrec.cli.commands.look:leaks", "List resources with cloudrec's tags and their $/h."),
    "catalog": ("cloudrec.cli.commands.look:catalog", "List instance types and their prices."),
    "doctor": ("cloudrec.cli.commands.look:doctor", "Check what `up` needs, or a cluster's health."),
    "addons": ("cloudrec.cli.commands.addons:addons", "List, install and remove add-ons of a cluster."),
    "data": ("cloudrec.cli.commands.data:data", "Make, prepare, check and push training data."),
    "image": ("cloudrec.cli.commands.image:image", "Build and push the trainer's image."),
    "sandbox": ("cloudrec.cli.commands.sandbox:sandbox", "Run a command on a cloud's stand-in."),
    "completion": ("cloudrec.cli.commands.completion:completion", "Print the completion script for a shell."),
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help lines, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order in which a new user needs them."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Offer the nearest name for one that is not known."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from cloudrec.spec.suggest import did_you_mean  # noqa: PLC0415  # only after a slip

            hint = did_you_mean(args[0], _COMMANDS)
            raise click.UsageError(f"there is no command {args[0]!r}; {hint}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands from the table above."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in _COMMANDS.items()])


def _print_version(context: click.Context) -> None:
    from cloudrec.version import __version__  # noqa: PLC0415  # no other command needs it

    click.echo(f"{_PROGRAM}, version {__version__}")
    context.exit()


@click.group(
    cls=LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=lambda context, _option, asked: _print_version(context) if asked else None,
    help="Show the version and exit.",
)
@click.option(
    _SANDBOX,
    is_flag=True,
    expose_value=False,
    help="Run the command on a cloud's stand-in on this machine; works with every command.",
)
def root() -> None:
    """Create a GPU cluster, train a TorchRec model on it, and remove everything again.

    \b
    cloudrec up local                      use this machine as a cluster
    cloudrec data synth data/raw           write Criteo-format files
    cloudrec data prepare data/raw data/prepared
    cloudrec train --dataset data/prepared
    cloudrec down

    Exit codes: 0 ok, 1 a run or an operation failed, 2 usage, spec or data, 3 preflight, 4 no capacity,
    5 resources remain, 6 declined, 130 interrupted.
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined


def main() -> None:
    """Run the command line and exit with the documented code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command and return its exit code; every error becomes a message on stderr."""
    try:
        _rehearse(arguments)
        code = root.main(args=arguments, prog_name=_PROGRAM, standalone_mode=False)
        if "cloudrec.cli.output" in sys.modules:  # a command that prints no document does not import it
            from cloudrec.cli.output import flush  # noqa: PLC0415

            flush()
        sys.stdout.flush()
    except CloudrecError as error:
        return _report(error.message, error.remedy, error.exit_code)
    except click.ClickException as error:
        return _report_usage(error)
    except (KeyboardInterrupt, click.exceptions.Abort):
        return _report("interrupted", None, INTERRUPTED)
    except (BrokenPipeError, SystemExit) as end:  # click exits by itself after a completion or a broken pipe
        return _end_early(end)
    except Exception as error:  # noqa: BLE001  # the boundary: a bug is reported with where to find its trace
        from cloudrec.cli.crash import keep_trace  # noqa: PLC0415  # only after a bug

        return _report(*keep_trace(error))
    return code if isinstance(code, int) else 0


def _rehearse(arguments: list[str]) -> None:
    """With --sandbox anywhere before `--`, become the same command on stand-ins; else return."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if _SANDBOX not in own:
        return
    from cloudrec.app.stand_ins import become  # noqa: PLC0415  # only for a rehearsal

    place = arguments.index(_SANDBOX)
    words = [*arguments[:place], *arguments[place + 1 :]]
    become(["attach", "--", sys.executable, "-P", "-m", _PROGRAM, *words])


def _end_early(end: BaseException) -> int:
    if isinstance(end, SystemExit) and not end.code:
        return 0
    # Python would complain once more while it closes stdout at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE


def _report(message: str, remedy: str | None, code: int) -> int:
    from cloudrec.cli.output import chosen_format, emit_error  # noqa: PLC0415  # only after an error
    from cloudrec.cli.plain import plain  # noqa: PLC0415  # as above

    first, *rest = plain(message).split("\n")
    click.echo(f"error: {first}", err=True)
    for line in rest:
        click.echo(f"       {line}", err=True)
    if remedy:
        click.echo(f"remedy: {plain(remedy)}", err=True)
    if chosen_format() != "table":
        emit_error(message, remedy, code)
    return code


def _report_usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context is not None else None
    return _report(error.format_message(), hint, error.exit_code)
