"""The list of file formats: the one place that knows them all.

A format is a module with a function ``format_of``, which makes a `Format` of its settings. Modules
are loaded when a source needs them, with their libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from blizzard_core.extras import extra_of_format, require
from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import FileFormat, FormatSettings

if TYPE_CHECKING:  # it brings Arrow along
    from blizzard_py.formats.protocol import Format

_MODULES = {
    "csv": "blizzard_py.formats.csv.files",
    "ndjson": "blizzard_py.formats.ndjson.lines",
    "json": "blizzard_py.formats.json_documents.documents",
    "avro": "blizzard_py.formats.avro.records",
    "text": "blizzard_py.formats.text",
    "binary": "blizzard_py.formats.binary",
    "xml": "blizzard_py.formats.xml.documents",
    "parquet": "blizzard_py.formats.columnar.parquet_files",
    "orc": "blizzard_py.formats.columnar.orc_files",
    "excel": "blizzard_py.formats.excel.records",
    "letters": "blizzard_py.formats.letter_files",
}


def check_format(settings: FormatSettings) -> None:
    """Raise `ConfigError` for a reader's schema that is not read.

    Its package may be missing: commands that read only state do without. `format_of` needs it.
    """
    if isinstance(settings, AvroOptions) and settings.avro_schema:
        format_of(settings)


def format_of(settings: FileFormat) -> Format:
    """Return the format with its options, whose rows have the names of columns.

    Raises `ConfigError` as `check_format` does, and `MissingExtra`.
    """
    from blizzard_py.formats.input_names import RenamingFormat  # noqa: PLC0415  # it brings Arrow along

    return RenamingFormat(plain_format_of(settings))


def plain_format_of(settings: FileFormat) -> Format:
    """Return the format itself, which takes columns by the names in the records."""
    if extra := extra_of_format(settings.type):
        require(extra.name)
    return cast("Format", import_module(_MODULES[settings.type]).format_of(settings))
