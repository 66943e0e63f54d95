"""`firesteel completion` prints the script that lets a shell complete commands, options and job ids."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from firesteel.cli import exit_codes

_VARIABLE = "_FIRESTEEL_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> int:
    """Print the completion script for SHELL.

    For bash, put `eval "$(firesteel completion bash)"` into ~/.bashrc, for zsh the same with zsh into ~/.zshrc. For fish,
    save the output as ~/.config/fish/completions/firesteel.fish.
    """
    from firesteel.cli.main import cli

    kind = get_completion_class(shell)
    assert kind is not None
    maker = kind(cli, {}, "firesteel", _VARIABLE)
    # Not `source()`: for bash that starts one to learn its version.
    click.echo(maker.source_template % maker.source_vars())
    return exit_codes.OK
