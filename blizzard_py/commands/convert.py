"""``blizzard convert``: a configuration of the original becomes one of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import command
from blizzard_core.errors import ConfigError
from blizzard_core.text import printable

if TYPE_CHECKING:
    from blizzard_py.commands.convert_config import Converted


@command(
    section="Set up",
    examples=("blizzard convert old/blizzard.yaml old/penguin.yaml --output blizzard.yaml",),
)
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE...",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("blizzard.yaml"),
    show_default=True,
    help="Path of the new configuration.",
)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def convert(files: tuple[Path, ...], output: Path, force: bool) -> int:
    """Convert configuration FILEs of the original Blizzard and Penguin.

    Both daemons' files become one. Each key is converted or named with a reason; an unknown key is
    an error, and then nothing is written. Secrets in FILEs become references to the environment.
    The original's checkpoints stay in use: docs/guides/move-from-original.md.
    """
    from blizzard_core.settings.yaml_file import parse_yaml
    from blizzard_py.app.configuration import load_config
    from blizzard_py.commands.convert_config import converted

    if output.exists() and not force:
        raise ConfigError(str(output), ["exists already; give another --output, or --force"])
    documents = [parse_yaml(path) for path in files]
    for document in documents:
        if document.problems:
            raise ConfigError(document.source, list(document.problems))
        if _is_valid_config(document.data):
            raise ConfigError(document.source, [_OURS])
    found = converted([document.data for document in documents])
    if found.problems:
        raise ConfigError(", ".join(map(str, files)), found.problems)
    _write(output, found, files)
    for note in found.notes:
        click.echo(printable(f"note: {note}"), err=True)
    click.echo(printable(f"Wrote {output}."))
    # The secrets are known here, so they need not be in the environment yet.
    load_config(output, {**found.secrets, **os.environ})
    click.echo(printable(f"Next: `blizzard validate {output}`, `blizzard plan {output}`."))
    return 0


_OURS = (
    "is a configuration of this Blizzard already and needs no conversion; `blizzard validate`"
    " checks it. If it is of the original, which has the same keys, write the original's defaults"
    " into each source (use_watermark: false, compression: gzip)"
)


def _is_valid_config(data: Mapping[str, Any]) -> bool:
    """Return whether the daemons accept the file as it is, so that nothing has to be converted.

    A Penguin file alone may be either, and means the same. Sources with a key ``path`` are the
    original's; they are accepted with our defaults.
    """
    from pydantic import ValidationError

    from blizzard_core.settings.document import Config

    if "pipelines" not in data:
        return False
    try:
        Config.model_validate(data)
    except ValidationError:
        return False
    pipelines = data["pipelines"].values()
    return not any("path" in source for found in pipelines for source in found["sources"].values())


def _write(output: Path, found: Converted, files: tuple[Path, ...]) -> None:
    import yaml

    from blizzard_py.commands.starter.yaml_text import commented, write_configuration

    head = (
        f"From {', '.join(path.name for path in files)} of the original, by blizzard convert.",
        "Every key with its default and meaning: docs/reference/configuration.md",
        *found.notes,
    )
    text = "".join(f"# {commented(line)}\n" for line in head)
    text += yaml.safe_dump(found.document, sort_keys=False, allow_unicode=True, width=100)
    write_configuration(output, text)
