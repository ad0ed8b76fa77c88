"""``blizzard init``: a first configuration, with the schema of what is there already.

The sample is the beginning of the first file that a source lists. It proposes
columns; what they are is for the operator to say, so every line is commented
and nothing is decided behind anyone's back.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import json as arrow_json

from blizzard_core.errors import StorageError
from blizzard_core.storage.protocol import Entry, Storage, is_hidden
from blizzard_py.commands.yaml_text import commented, quoted
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import FileFailed
from blizzard_py.sources.files.discovery import accepts

SAMPLE_BYTES = 1 << 20
_PAGES = 10


@dataclass(frozen=True, slots=True)
class Column:
    """A proposed column; ``type`` is None where the sample does not say one of ours."""

    name: str
    type: str | None
    seen: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What was found at the source: the file looked at, its columns, or why there are none."""

    path: str | None = None
    columns: tuple[Column, ...] = ()
    problem: str = ""


def sample(storage: Storage) -> Sample:
    """Look at the first file of a source. Problems are part of the answer."""
    try:
        found = _first(storage)
    except StorageError as error:
        return Sample(problem=str(error))
    if found is None:
        return Sample(problem=f"{storage.uri} holds no NDJSON file yet")
    try:
        with opened(storage, JobFile(found.path, found.size), "auto") as blocks:
            head = next(blocks, b"")[:SAMPLE_BYTES]
        lines = head if len(head) < SAMPLE_BYTES else head[: head.rfind(b"\n") + 1]
        table = arrow_json.read_json(
            io.BytesIO(lines),
            arrow_json.ReadOptions(use_threads=False, block_size=2 * SAMPLE_BYTES),
        )
    except (FileFailed, StorageError, pa.ArrowException) as error:
        return Sample(found.path, problem=f"{found.path} cannot be read as NDJSON: {error}")
    columns = (Column(field.name, _type_of(field.type), str(field.type)) for field in table.schema)
    return Sample(found.path, tuple(columns))


def _first(storage: Storage) -> Entry | None:
    accept = accepts("auto")
    for number, page in enumerate(storage.list_range("", None)):
        for entry in page.entries:
            if accept(entry.path) and not is_hidden(entry.path) and entry.size:
                return entry
        if number == _PAGES:
            return None
    return None


def _type_of(found: pa.DataType) -> str | None:
    for test, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "int64"),
        (pa.types.is_floating, "float64"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_string, "string"),
    ):
        if test(found):
            return name
    return None


def configuration(source_uri: str, table_uri: str, found: Sample) -> str:
    """The starter configuration as YAML. It passes `validate` as it is."""
    return f"""\
# Files that arrive below source_uri become rows of the Delta table at table_uri.
# Try it: `blizzard validate`, `blizzard plan`, then `run --once` of blizzard and penguin.
# Every key with its default and meaning: docs/configuration.md
# ${{VAR}} and ${{VAR:-default}} are filled in from the environment.

pipelines:
  events:                        # a name of your choice; state and logs carry it
    sources:
      main:
        source_uri: {quoted(source_uri)}
        poll_interval_secs: 60   # how often to look for new files
        # compression: auto      # by ending: .ndjson .jsonl .json, each also with .gz or .zst
        # partition_filter:      # how directories are laid out, if they are named by time
        #   prefix_template: date=%Y-%m-%d
        #   lookback: 30         # a first start goes back so far; without it, to the beginning
        # storage_options:       # default: the standard credentials of the store
        #   AWS_REGION: us-east-1
    sink:
      table_uri: {quoted(table_uri)}
      # partition_by:            # the table's partitions; default: none
      #   prefix_template: date=%Y-%m-%d
      #   column: time           # a timestamp column; default: from the source file's path
    schema:
{_schema(found)}
    # error_handling:
    #   max_failures: 0          # stop at so many bad files; 0: quarantine them and go on

# metrics: {{ address: "127.0.0.1:9090" }}
"""


def _schema(found: Sample) -> str:
    """The columns of the sample; without any they are found out when there are files."""
    known = [column for column in found.columns if column.type is not None]
    odd = [column for column in found.columns if column.type is None]
    if not known:
        lines = [
            f"# No sample: {commented(found.problem or 'no field of a plain type')}.",
            "infer: true                # from the first files; `blizzard schema` shows the result",
            "# fields:                  # what is declared here is not inferred",
            "#   - { name: time, type: timestamp, nullable: false }",
        ]
    else:
        lines = [
            f"# From the beginning of {commented(str(found.path))}; check the types.",
            "# infer: true              # find out what is not declared",
            "fields:                    # other fields of the JSON are ignored",
            *(f"  {_field(column)}" for column in known),
        ]
    lines += [f"#   {_odd(column)}" for column in odd]
    return "\n".join(f"      {line}" for line in lines)


def _odd(column: Column) -> str:
    return f"- {{ name: {quoted(column.name)}, type: json }}    # seen: {commented(column.seen)}"


def _field(column: Column) -> str:
    return f"- {{ name: {quoted(column.name)}, type: {column.type} }}"


def columns_told(columns: Sequence[Column]) -> str:
    """One line for people."""
    known = sum(column.type is not None for column in columns)
    odd = len(columns) - known
    return f"{known} fields" + (f", {odd} more that are commented out" if odd else "")
