"""``blizzard init``: a first configuration, with what was found at the source.

The configuration runs as it is written. Keys that the operator should decide on are comments, with
the value that the sample suggests.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from blizzard_core.storage.opening import scheme_of
from blizzard_core.text import counted
from blizzard_py.commands.starter.sample import Sample
from blizzard_py.commands.starter.target import name_from
from blizzard_py.commands.starter.yaml_text import EDITOR_LINES, Secret, commented, flow, quoted
from blizzard_py.job import FieldSpec
from blizzard_py.schema.field_specs import field_document

# What happens to fields that come later.
_CAPTURE = (
    "unexpected_fields: capture # other fields go to the column _rescued; `evolve: add` makes"
    " columns of them"
)


def configuration(
    source_uri: str,
    table_uri: str,
    found: Sample,
    options: Mapping[str, str | Secret] = MappingProxyType({}),
) -> str:
    """Return the starter configuration as YAML that passes `validate`.

    The pipeline has the name of its table. ``options`` are those of the stores.
    """
    name = name_from(table_uri.rstrip("/").rpartition("/")[2], "events")
    return f"""\
{EDITOR_LINES}
# Files that arrive below source_uri become rows of the Delta table at table_uri.
# Try it: `blizzard validate`, `blizzard plan`, then `run --once` of blizzard and penguin.
# Every key with its default and meaning: docs/reference/configuration.md
# ${{VAR}} and ${{VAR:-default}} are filled in from the environment.

pipelines:
  {flow(name)}:                        # a name of your choice; state and logs carry it
    sources:
      main:
        source_uri: {quoted(source_uri)}
{_format(found)}        poll_interval: 1m        # how often to look for new files
{_order(found)}{_layout(found.layout)}
{_path_columns(found)}{_store(options)}    sink:
      table_uri: {quoted(table_uri)}{_sink_store(source_uri, table_uri, options)}
      # partition_by:            # the table's partitions; default: none
      #   prefix_template: date=%Y-%m-%d
      #   column: {_time(found)}  # a timestamp column; default: from the source file's path
    schema:
{_schema(found)}
    # error_handling:
    #   advanced: {{ max_failures: 0 }}  # stop at so many bad files; 0: quarantine them and go on

# metrics: {{ address: "127.0.0.1:9090", penguin_address: "127.0.0.1:9091" }}
"""


def _store(options: Mapping[str, str | Secret]) -> str:
    """Return the options of the source's store, or an example of them."""
    if options:
        return f"        storage_options: {flow(options)}\n"
    return (
        "        # storage_options:       # default: the standard credentials of the store\n"
        "        #   AWS_REGION: us-east-1\n"
    )


def _sink_store(source_uri: str, table_uri: str, options: Mapping[str, str | Secret]) -> str:
    """Return the options of the table's store, if it is of the source's kind."""
    same = scheme_of(source_uri) == scheme_of(table_uri)
    return f"\n      storage_options: {flow(options)}" if options and same else ""


def _format(found: Sample) -> str:
    """Return the format where it is not the default, as the sample shows it; check it."""
    doubts = "".join(f"        # {commented(doubt)}\n" for doubt in found.doubts)
    if found.format.type == "ndjson":
        return doubts
    options = found.format.model_dump(exclude_defaults=True, exclude={"type"})
    text = flow({"type": found.format.type, **options}) if options else found.format.type
    glob = f"        include: [{quoted(found.glob)}]\n" if found.glob else ""
    return f"{doubts}        format: {text}\n{glob}"


def _order(found: Sample) -> str:
    """Return the setting for names that do not sort in time, with the reason."""
    if not found.disorder:
        return ""
    lines = [
        f"# {commented(found.disorder)}:",
        "use_watermark: false     # every poll lists all files, and knows those that are done",
    ]
    return "".join(f"        {line}\n" for line in lines)


def _layout(template: str) -> str:
    """Return the names of the directories, if they are times."""
    if not template:
        lines = [
            "# partition_filter:      # how directories are laid out, if they are named by time",
            "#   prefix_template: date=%Y-%m-%d",
            "#   lookback: 30         # a first start goes back so far; default: to the beginning",
        ]
    else:
        lines = [
            "partition_filter:        # how directories are laid out",
            f"  prefix_template: {quoted(template)}",
            "  # lookback: 30         # a first start goes back so many of the finest unit",
        ]
    return "\n".join(f"        {line}" for line in lines)


def _path_columns(found: Sample) -> str:
    """Return the columns that come from folders."""
    if not found.path_columns:
        return ""
    return f"        path_columns: {flow(found.path_columns)} # from folders; not in the files\n"


def _null_parts(field: FieldSpec, found: Sample) -> str:
    """Return a comment on what had no value in the sample, and so has no known type."""
    name = field.input_name
    if name in found.nulls:
        return "  # null in the sample"
    inner = sorted(path for path in found.nulls if path.startswith((f"{name}.", f"{name}[")))
    return f"  # null in the sample: {commented(', '.join(inner))}" if inner else ""


def _time(found: Sample) -> str:
    """Return a timestamp column for partitions, else ``time``."""
    return next((quoted(f.name) for f in found.fields if f.type == "timestamp"), "time")


def _schema(found: Sample) -> str:
    """Return the columns of the sample; without any they are inferred later."""
    if not found.fields:
        lines = [
            f"# No sample: {commented(found.problem)}.",
            "infer: true                # from the first files; `blizzard schema` shows the result",
            _CAPTURE,
            "# fields:                  # what is declared here is not inferred",
            "#   - { name: time, type: timestamp, nullable: false }",
        ]
    else:
        rows = found.trial.rows
        all_ = "all " if found.is_whole else ""
        seen = f"{all_}{counted(found.records, 'record')} of {counted(found.files, 'file')}"
        lines = [
            f"# From {seen}; check the types.",
            f"# Tried: {counted(rows, 'row')}, {counted(found.trial.bad, 'bad record')}.",
            *(f"#   {commented(each)}" for each in found.trial.reasons),
            "# infer: true              # find out what is not declared",
            *([_CAPTURE] if found.is_captured else []),
            "fields:" if found.is_captured else "fields:                    # others are ignored",
            *(
                f"  - {flow(field_document(field))}{_null_parts(field, found)}"
                for field in found.fields
            ),
        ]
    lines += [
        f"#   left out: {commented(name) or repr(name)}: {commented(why)}"
        for name, why in found.left_out.items()
    ]
    return "\n".join(f"      {line}" for line in lines)
