"""``blizzard init``: a first configuration, with what was found at the source.

The configuration runs as it is written. Keys that the operator should decide on are comments, with
the value that the sample suggests.
"""

from __future__ import annotations

from blizzard_core.text import counted
from blizzard_py.commands.starter.sample import Sample
from blizzard_py.commands.starter.target import name_from
from blizzard_py.commands.starter.yaml_text import EDITOR_LINES, commented, flow, quoted
from blizzard_py.schema.field_specs import field_document


def configuration(source_uri: str, table_uri: str, found: Sample) -> str:
    """Return the starter configuration as YAML that passes `validate`.

    The pipeline has the name of its table.
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
{_layout(found.layout)}
        # storage_options:       # default: the standard credentials of the store
        #   AWS_REGION: us-east-1
    sink:
      table_uri: {quoted(table_uri)}
      # partition_by:            # the table's partitions; default: none
      #   prefix_template: date=%Y-%m-%d
      #   column: {_time(found)}  # a timestamp column; default: from the source file's path
    schema:
{_schema(found)}
    # error_handling:
    #   max_failures: 0          # stop at so many bad files; 0: quarantine them and go on

# metrics: {{ address: "127.0.0.1:9090", penguin_address: "127.0.0.1:9091" }}
"""


def _format(found: Sample) -> str:
    """Return the format where it is not the default, as the sample shows it; check it."""
    doubts = "".join(f"        # {commented(doubt)}\n" for doubt in found.doubts)
    if found.format.type == "ndjson":
        return doubts
    options = found.format.model_dump(exclude_defaults=True, exclude={"type"})
    text = flow({"type": found.format.type, **options}) if options else found.format.type
    glob = f"        path_glob_filter: {quoted(found.glob)}\n" if found.glob else ""
    return f"{doubts}        format: {text}\n{glob}"


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


def _time(found: Sample) -> str:
    """Return a timestamp column for partitions, else ``time``."""
    return next((quoted(f.name) for f in found.fields if f.type == "timestamp"), "time")


def _schema(found: Sample) -> str:
    """Return the columns of the sample; without any they are inferred later."""
    if not found.fields:
        lines = [
            f"# No sample: {commented(found.problem)}.",
            "infer: true                # from the first files; `blizzard schema` shows the result",
            "# fields:                  # what is declared here is not inferred",
            "#   - { name: time, type: timestamp, nullable: false }",
        ]
    else:
        rows = found.trial.rows
        seen = f"{counted(found.records, 'record')} of {counted(found.files, 'file')}"
        lines = [
            f"# From {seen}; check the types.",
            f"# Tried: {counted(rows, 'row')}, {counted(found.trial.bad, 'bad record')}.",
            *(f"#   {commented(each)}" for each in found.trial.reasons),
            "# infer: true              # find out what is not declared",
            "fields:                    # other fields are ignored",
            *(f"  - {flow(field_document(field))}" for field in found.fields),
        ]
    lines += [
        f"#   left out: {commented(name)}: {commented(why)}" for name, why in found.left_out.items()
    ]
    return "\n".join(f"      {line}" for line in lines)
