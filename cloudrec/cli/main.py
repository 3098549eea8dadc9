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

# group -> name -> (module:attribute, the line in --help). The line is here so that help imports no command.
_GROUPS = {
    "Clusters": {
        "up": ("clusters:up", "Create or reconcile a cluster."),
        "down": ("clusters:down", "Remove everything that was created."),
        "status": ("runs:status", "Show clusters and runs."),
        "access": ("access:access", "Show or change who reaches a cluster."),
        "addons": ("addons:addons", "List, install and remove add-ons of a cluster."),
        "doctor": ("look:doctor", "Check what `up` needs, or a cluster's health."),
        "leaks": ("look:leaks", "List resources with cloudrec's tags and their $/h."),
        "catalog": ("look:catalog", "List instance types and their prices."),
        "cost": ("cost:cost", "Show what clusters and runs have cost."),
    },
    "Runs": {
        "train": ("train:train", "Launch a training run, or resume one."),
        "queue": ("runs:queue", "Show the runs of managed clusters that wait."),
        "ui": ("pages.ui:ui", "Show clusters and runs in a browser."),
        "logs": ("runs:logs", "Print the output of a rank of a run."),
        "exec": ("running.attach:execute", "Run a command where a rank runs."),
        "ssh": ("running.attach:ssh", "Open a shell where a rank runs."),
        "port-forward": ("running.attach:port_forward", "Serve a port of a rank on this machine."),
        "stop": ("runs:stop", "Stop a run gracefully: checkpoint, then end."),
        "report": ("runs:report", "Write an HTML report of a run."),
        "fetch": ("runs:fetch", "Copy the results of a run to a local folder."),
        "plan": ("plan:plan", "Show where a run fits, how fast it is, and what it costs."),
    },
    "Data, images and models": {
        "data": ("data:data", "Make, prepare, check and push training data."),
        "image": ("image:image", "Build and push the trainer's image."),
        "serve": ("serve:serve", "Score raw rows with an exported model, over HTTP."),
    },
    "Other": {
        "init": ("init:init", "Write a commented cloudrec.yaml."),
        "notify": ("notices.notify:notify", "Send a test notification, or show what was sent."),
        "sandbox": ("sandbox:sandbox", "Run a command on a cloud's stand-in."),
        "completion": ("completion:completion", "Print the completion script for a shell."),
    },
}
_COMMANDS = {name: entry for group in _GROUPS.values() for name, entry in group.items()}

# Names of other tools for what a command does here, and that command.
_MEANT = {
    "status": "ps ls list get describe show runs clusters jobs top watch info",
    "up": "create start apply provision deploy install",
    "train": "run launch submit job resume",
    "down": "rm remove delete destroy teardown terminate",
    "stop": "cancel kill abort",
    "catalog": "gpus gpu instances types prices price offers show-gpus",
    "cost": "costs bill billing spend cost-report budget",
    "logs": "log tail",
    "exec": "attach",
    "ssh": "shell bash login-node",
    "port-forward": "forward tunnel tensorboard notebook jupyter",
    "doctor": "check health test login whoami",
    "leaks": "orphans audit",
    "fetch": "download cp copy pull",
    "ui": "dashboard web page browser gui",
    "report": "html",
    "queue": "waiting",
    "plan": "estimate fit",
    "data": "dataset datasets prepare synth",
    "serve": "predict score",
    "init": "new template config",
}


class LazyGroup(click.Group):
    """A group that knows its commands' names and help lines, and imports a command when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names, group by group."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        del ctx
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(f"cloudrec.cli.commands.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Offer a command for one that is not known."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command {args[0]!r}; {_hint(args[0])}", ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by group from the table above, and then the options."""
        longest = max(map(len, _COMMANDS))
        for group, commands in _GROUPS.items():
            with formatter.section(group):
                formatter.write_dl([(name.ljust(longest), line) for name, (_, line) in commands.items()])
        click.Command.format_options(self, ctx, formatter)


def _hint(wrong: str) -> str:
    """Return the command that a wrong name means: by its sense, else by its spelling, else none."""
    from cloudrec.spec.suggest import did_you_mean  # noqa: PLC0415  # only after a slip

    meant = next((name for name, words in _MEANT.items() if wrong.lower() in words.split()), None)
    if meant is not None:
        return f"did you mean {meant!r}? {_COMMANDS[meant][1]}"
    if wrong in {"help", "version"}:
        return f"did you mean `cloudrec --{wrong}`?"
    return did_you_mean(wrong, _COMMANDS, cutoff=0.65)


def _print_version(context: click.Context) -> None:
    from cloudrec.version import __version__  # noqa: PLC0415  # no other command needs it

    click.echo(f"{_PROGRAM}, version {__version__}")
    context.exit()


@click.group(
    cls=LazyGroup,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 a run or an operation failed, 2 usage, spec or data, 3 preflight, 4 no "
    "capacity, 5 resources remain, 6 declined, 130 interrupted.",
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
    Examples:
      cloudrec up local                      use this machine as a cluster
      cloudrec data synth data/raw           write Criteo-format files
      cloudrec data prepare data/raw data/prepared
      cloudrec train --dataset data/prepared
      cloudrec status                        what exists, and what it costs
      cloudrec down                          remove it
      cloudrec --sandbox up aws              rehearse on a stand-in of a cloud
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
        return _report_interruption(arguments)
    except (BrokenPipeError, SystemExit) as end:  # click exits by itself after a completion or a broken pipe
        return _end_early(end)
    except Exception as error:  # noqa: BLE001  # the boundary: a bug is reported with where to find its trace
        from cloudrec.cli.crash import keep_trace  # noqa: PLC0415  # only after a bug

        return _report(*keep_trace(error))
    finally:
        if "cloudrec.cli.interrupted" in sys.modules:
            from cloudrec.cli.interrupted import let_go  # noqa: PLC0415  # as above

            let_go()
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
        click.echo("remedy: " + plain(remedy).replace("\n", "\n        "), err=True)
    if chosen_format() != "table":
        emit_error(message, remedy, code)
    return code


def _report_interruption(arguments: list[str]) -> int:
    """Say what exists, what it costs, and the next commands, where the command knows."""
    if "cloudrec.cli.interrupted" not in sys.modules:  # a command that leaves nothing does not import it
        return _report("interrupted", None, INTERRUPTED)
    from cloudrec.cli.interrupted import interruption  # noqa: PLC0415  # as above

    return _report(*interruption(arguments), INTERRUPTED)


def _report_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # no error, as for kubectl
        click.echo(error.format_message())
        return 0
    context = getattr(error, "ctx", None)
    hint = f"see `{context.command_path} --help`" if context is not None else None
    return _report(error.format_message(), hint, error.exit_code)
