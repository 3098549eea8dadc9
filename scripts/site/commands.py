"""The page of all commands, from what the command line itself has: help, arguments, options, limits."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

import click

from cloudrec.cli.main import root
from cloudrec_contract import exit_codes
from scripts.site.text import bullet, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "reference/commands.md"
_HEAD = """# Commands

This page is generated from the command line itself (`python -m scripts.site`). `cloudrec COMMAND
--help` shows the same. `--sandbox` works with every command: it sends the command to a stand-in of
a cloud on this machine.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | done |
| 1 | a run or an operation failed |
| 2 | an argument, the spec or data is invalid |
| 3 | something that the command needs is missing: credentials, quota, tools, a cluster |
| 4 | the cloud has no capacity |
| 5 | resources remain |
| 6 | the question was declined, or there was no terminal to ask on |
| 130 | interrupted |

The trainer and the pods of a run have others:

| Code | Meaning |
|---|---|
"""
_TRAINER = {
    "FINISHED": "finished",
    "FAILED": "any failure without a separate code",
    "BAD_CONFIG": "the configuration cannot be run",
    "BAD_DATA": "the data is missing, damaged or has another encoding",
    "UNFIT_NODE": "the node does not meet the run's requirements",
    "RESTARTS_SPENT": "the ranks crashed more often than `max_restarts`",
    "GANG_INCOMPLETE": "too few nodes joined the run in time",
    "STOPPED": "stopped with a committed checkpoint; start again to resume",
    "PEER_LOST": "another rank was lost; start again",
}


def page() -> str:
    """Return the page."""
    codes = "".join(f"| {getattr(exit_codes, name)} | {words} |\n" for name, words in _TRAINER.items())
    context = click.Context(root, info_name="cloudrec")
    return _HEAD + codes + "".join(_commands(root, context))


def _commands(group: click.Group, context: click.Context) -> Iterator[str]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        inner = click.Context(command, info_name=name, parent=context)
        if isinstance(command, click.Group):
            yield from _commands(command, inner)
        else:
            yield _section(command, inner)


def _section(command: click.Command, context: click.Context) -> str:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    listed = "".join(
        _option(each, context) for each in options if not each.hidden and "--help" not in each.opts
    )
    heading = f"\n## {context.command_path}\n\n```text\n{_fold(usage)}\n```\n\n{_help(command)}"
    return heading + (f"\n{listed}" if listed else "")


def _fold(usage: str) -> str:
    """Return a usage line in lines of at most 90 characters."""
    return "\n    ".join(wrapped(usage, width=90).splitlines())


def _help(command: click.Command) -> str:
    """Return a help text as Markdown; lines after click's mark for them are shown as they are."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", (command.help or "").replace("\r", "").strip()):
        lines = [line.strip() for line in paragraph.splitlines()]
        if lines[0] == "\b":
            inside = textwrap.dedent("\n".join(paragraph.splitlines()[1:])).rstrip()
            parts.append(f"```text\n{inside}\n```")
        else:
            parts.append(wrapped(" ".join(lines)))
    return "\n\n".join(parts) + "\n"


def _option(option: click.Option, context: click.Context) -> str:
    names = ", ".join((*option.opts, *option.secondary_opts))
    metavar = "" if option.is_flag or option.count else option.make_metavar(context).replace(" RANGE", "")
    return bullet(f"`{names}{' ' + metavar if metavar else ''}`: {_meaning(option, context)}")


def _meaning(option: click.Option, context: click.Context) -> str:
    words = [" ".join((option.help or "").split()).rstrip(".")]
    extra = option.get_help_extra(context)
    limits = [
        *([f"default: {extra['default']}"] if "default" in extra else []),
        *([str(extra["range"])] if "range" in extra else []),
        *(["required"] if option.required else []),
        *(["may be repeated"] if option.multiple else []),
    ]
    return words[0] + (f" ({'; '.join(limits)})" if limits else "")
