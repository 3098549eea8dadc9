"""`cloudrec completion`: the script that a shell sources."""

from __future__ import annotations

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash:  eval "$(cloudrec completion bash)"      in ~/.bashrc
    zsh:   eval "$(cloudrec completion zsh)"       in ~/.zshrc
    fish:  cloudrec completion fish > ~/.config/fish/completions/cloudrec.fish
    """  # noqa: D301  # \b is click's mark for lines that are not to be joined
    from click.shell_completion import get_completion_class  # noqa: PLC0415  # only here

    from cloudrec.cli.main import root  # noqa: PLC0415  # main finds this module lazily

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"there is no completion for the shell {shell}")
    click.echo(kind(root, {}, "cloudrec", "_CLOUDREC_COMPLETE").source())
