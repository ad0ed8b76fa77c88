"""The list of file formats: the one place that knows them all.

A format is a class or a function in a module, which makes a `Format` of its settings. Modules are
loaded when a source needs them, with their libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from blizzard_core.extras import extra_of_format, require
from blizzard_core.settings.format_options import AvroOptions
from blizzard_core.settings.formats import FileFormat, FormatSettings

if TYPE_CHECKING:  # it brings Arrow along
    from blizzard_py.formats.protocol import Format

_MAKERS = {
    "csv": "csv.files:CsvFormat",
    "ndjson": "ndjson.lines:format_of",
    "json": "json_documents.documents:format_of",
    "avro": "avro.records:format_of",
    "text": "text:TextFormat",
    "binary": "binary:BinaryFormat",
    "xml": "xml.documents:XmlFormat",
    "parquet": "columnar.formats:ParquetFiles",
    "orc": "columnar.formats:OrcFiles",
    "excel": "excel.records:ExcelFormat",
    "letters": "letter_files:format_of",
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
    module, _, name = _MAKERS[settings.type].partition(":")
    return cast("Format", getattr(import_module(f"{__package__}.{module}"), name)(settings))
