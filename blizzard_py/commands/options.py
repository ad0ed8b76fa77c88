"""Options that name a source, completed from the configuration that was typed before them."""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import split_arg_string

from blizzard_core.cli import config_argument
from blizzard_core.errors import BlizzardError
from blizzard_core.redact import redacted
from blizzard_core.text import printable

if TYPE_CHECKING:
    from blizzard_core.settings.document import Config
    from blizzard_core.storage.protocol import Storage


Body = Callable[..., Any]

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would be done; write nothing."
)
why_option = click.option("--why", default="", metavar="TEXT", help="Reason, for the record.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


def _checked_reason(_context: click.Context, _parameter: click.Parameter, why: str) -> str:
    if not why.strip():
        raise click.UsageError("--why: give a reason, for the record")
    return redacted(why.strip())


required_why_option = click.option(
    "--why",
    metavar="TEXT",
    required=True,
    callback=_checked_reason,
    help="Reason, for the record.",
)


def _typed(context: click.Context) -> Config | None:
    """Return the configuration named in the command line, if it is readable.

    Click has not parsed the arguments yet while the user types an option's value. So the words of
    the line are searched for a configuration.
    """
    from blizzard_py.app.configuration import load_config

    words = split_arg_string(os.environ.get("COMP_WORDS", ""))
    for path in (context.params.get("config"), *map(Path, words[1:])):
        if path is not None and path.exists():
            try:
                return load_config(path)
            except BlizzardError:
                continue
    return None


def _pipelines(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    config = _typed(context)
    return [] if config is None else [name for name in config.pipelines if name.startswith(typed)]


def _sources(context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    config = _typed(context)
    if config is None:
        return []
    wanted = context.params.get("pipeline")
    return sorted(
        {
            source
            for name, pipeline in config.pipelines.items()
            if wanted in {None, name}
            for source in pipeline.sources
            if source.startswith(typed)
        }
    )


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """The configuration that a command names, and the source; without names all are meant."""

    path: Path
    pipeline: str | None
    source: str | None

    @property
    def where(self) -> tuple[str, str]:
        """The names of the source, for commands that require them."""
        return self.pipeline or "", self.source or ""

    def load(self) -> Config:
        """Return the configuration. Raises `ConfigError`."""
        from blizzard_py.app.configuration import load_config

        return load_config(self.path)


def source_options(*, required: bool) -> Callable[[Body], Body]:
    """Return the argument ``CONFIG``, and the options ``--pipeline`` and ``--source``.

    The function gets ``chosen``, a `SourceChoice`, in their place.
    """
    every = None if required else "all"

    # Options are applied from the last to the first, as decorators are.
    options: list[Any] = [
        click.option(
            "--source",
            required=required,
            shell_complete=_sources,
            show_default=every or False,
            help="Source name.",
        ),
        click.option(
            "--pipeline",
            required=required,
            shell_complete=_pipelines,
            show_default=every or False,
            help="Pipeline name.",
        ),
        config_argument,
    ]

    def decorate(function: Body) -> Body:
        @wraps(function)
        def with_choice(
            *, config: Path, pipeline: str | None, source: str | None, **given: Any
        ) -> Any:
            return function(chosen=SourceChoice(config, pipeline, source), **given)

        decorated: Body = with_choice
        for option in options:
            decorated = option(decorated)
        return decorated

    return decorate


def moment_option(
    _context: click.Context, parameter: click.Parameter, text: str | None
) -> float | None:
    """Return the time that an option names, in epoch seconds; UTC without a zone."""
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise click.UsageError(
            f"{parameter.opts[0]}: {text!r} is no time such as 2024-01-28T14:00:00Z"
        ) from error
    return (found if found.tzinfo else found.replace(tzinfo=dt.UTC)).timestamp()


def print_paths(paths: Sequence[str], most: int) -> None:
    """Print paths from a store, a line each, and how many more there are."""
    for path in paths[:most]:
        click.echo(f"  {printable(path)}")
    if len(paths) > most:
        click.echo(f"  and {len(paths) - most:,} more")


def confirm(name: str, *, yes: bool, dry_run: bool) -> None:
    """Go on if someone types ``name`` or said ``--yes``; otherwise end the command.

    A dry run ends here with exit code 0, a name that does not match with 1.
    """
    if dry_run:
        raise click.exceptions.Exit(0)
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            "there is no terminal to ask for a confirmation; add --yes to confirm"
        )
    typed = click.prompt(f"Type {name} to confirm", default="", show_default=False)
    if typed != name:
        click.echo("The name does not match. Nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def print_changed(text: str, sink: Storage, backup: str | None) -> None:
    """Print what was done, and where the old checkpoint is, if there was one."""
    kept = "" if backup is None else f" The old checkpoint is {sink.uri}/{backup}"
    click.echo(f"{text}{kept}")
