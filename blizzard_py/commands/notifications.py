"""``blizzard notifications``."""

from __future__ import annotations

from pathlib import Path

import click

from blizzard_core.cli import GuidedCommand, command, config_argument, log_level_option


@click.command(
    cls=GuidedCommand, section="Set up", examples=("blizzard notifications config.yaml",)
)
@config_argument
@log_level_option
@command
def notifications(config: Path) -> int:
    """Print what notifications need: policies, rights, filters, checks.

    Blizzard creates nothing in your cloud. Asks no service.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.notification_setup import setup_lines

    for line in setup_lines(load_config(config)):
        click.echo(line)
    return 0
