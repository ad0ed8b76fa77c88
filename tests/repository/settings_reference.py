"""``docs/reference/configuration.md`` and ``configs/example.yaml``, made from the settings.

    python -m tests.repository.settings_reference [--check]

It writes ``docs/reference/limits.md`` as well (`tests.repository.limits_reference`). Types,
defaults and bounds come from the models, the prose from their docstrings, and the remarks from
those of the fields. With ``--check`` a stale file is an error and nothing is written.

In the example a key without a default is shown with the first of its ``examples``, and commented
out unless it is required. The example of a map is a name in it. The example of a block lists the
keys that are not commented out. A map with blocks of several kinds has one example name for each.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Literal,
    NamedTuple,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from blizzard_core.settings.base import as_written, is_duration
from blizzard_core.settings.connections import (
    DatabaseConnectionSettings,
    HttpConnectionSettings,
    LakeConnectionSettings,
)
from blizzard_core.settings.document import Config
from blizzard_core.settings.formats import FORMATS
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.json_schema import description
from blizzard_core.settings.load import models_in
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.units import FileUnits, UnitSettings
from tests.repository.limits_reference import limits_reference

_EXAMPLE_HEAD = """\
# Every key, at its default. What is commented out has none and is shown with an example.
# Generated from the settings by `make docs`; docs/reference/configuration.md says more of each.
# ${VAR} and ${VAR:-default} are filled in from the environment; $${ is a literal ${.
# ${file:/run/secrets/NAME} is filled in from that file; when it is renewed a daemon starts again.
# `blizzard validate` and `penguin validate` report every problem at once.
"""

_WIDTH = 100
_REMARK_COLUMN = 46
_EMPTY: tuple[Any, ...] = (None, (), [], {})


class _Line(NamedTuple):
    """A line without its remark. ``indent`` holds the marks of blocks that are commented out."""

    indent: str
    text: str
    remark: str = ""

    def __str__(self) -> str:
        line = f"{self.indent}{self.text}"
        if not self.remark:
            return line
        with_remark = f"{line:<{_REMARK_COLUMN}} # {self.remark}"
        return (
            with_remark if len(with_remark) <= _WIDTH else f"{self.indent}# {self.remark}\n{line}"
        )


def example_configuration() -> str:
    """Return the whole file."""
    blocks = ("\n".join(map(str, _key(Config, name, None))) for name in Config.model_fields)
    return "\n".join([_EXAMPLE_HEAD, *(f"{block}\n" for block in blocks)])


def _block(model: type[BaseModel], given: Mapping[str, Any]) -> list[_Line]:
    return [line for name in model.model_fields for line in _key(model, name, given.get(name))]


def _key(model: type[BaseModel], name: str, given: Any) -> list[_Line]:
    """Return the lines of one key; ``given`` is its value in its block's example."""
    field = model.model_fields[name]
    default = None
    if not field.is_required():
        default = as_written(field, field.get_default(call_default_factory=True))
    value = default if given is None else given
    example = field.examples[0] if field.examples else None
    shown = example if value in _EMPTY and example is not None else value
    nested, in_map = _blocks_in(field)
    text = ""
    inner: list[_Line] = []
    if isinstance(shown, list) and len(_flow(shown)) > _REMARK_COLUMN:
        inner = _items(shown)
    elif not nested:
        text = f" {_flow(shown)}"
    elif in_map:
        for entry, each in zip(field.examples or [], nested, strict=True):
            inner += [_Line("", f"{entry}:"), *_indented(_block(each, _shown(each)))]
    else:
        inner = _block(nested[0], shown if isinstance(shown, Mapping) else {})
    head = _Line("", f"{field.alias or name}:{text}", _remark(model, name))
    lines = [head, *_indented(inner)]
    has_default = default not in _EMPTY or (example is None and default is not None)
    if has_default or in_map or field.is_required() or given is not None:
        return lines
    return [
        _Line(indent, f"# {text}", remark) if at == 0 else _Line(f"# {indent}", text, remark)
        for at, (indent, text, remark) in enumerate(lines)
    ]


def _blocks_in(field: FieldInfo) -> tuple[list[type[BaseModel]], bool]:
    """Return the blocks in a key, and whether they are in a map; a list is a value."""
    if list in {get_origin(kind) for kind in (field.annotation, *get_args(field.annotation))}:
        return [], False
    found = list(models_in(field.annotation))
    return [model for model, _ in found], any(keyed for _, keyed in found)


def _shown(model: type[BaseModel]) -> Mapping[str, Any]:
    """Return what an entry of a map has to be given where one of several keys is needed."""
    extra = model.model_config.get("json_schema_extra")
    return extra if isinstance(extra, Mapping) else {}


def _indented(lines: list[_Line]) -> list[_Line]:
    return [line._replace(indent=f"  {line.indent}") for line in lines]


def _items(values: list[Any]) -> list[_Line]:
    """Return a list with an item in each line, a long one over several lines."""
    found = []
    for value in values:
        text = f"- {_flow(value)}"
        if len(text) > _WIDTH - 10:
            text = yaml.safe_dump([value], default_flow_style=None, sort_keys=False)
        found += [_Line("", line) for line in text.splitlines()]
    return found


def _flow(value: Any) -> str:
    """Return a value in one line of YAML."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    text = text.removesuffix("\n").removesuffix("\n...")
    return f"{{ {text[1:-1]} }}" if text.startswith("{") and text != "{}" else text


def _remark(model: type[BaseModel], name: str) -> str:
    """Return the choices, if any, and the docstring, as plain text."""
    field = model.model_fields[name]
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    text = description(model, name).replace("`", "").removesuffix(".")
    return ": ".join(filter(None, [" | ".join(choices), text]))


_HEAD = """\
# Configuration

One YAML file for both daemons, or a folder. Generated from the settings by `make docs`.

- `${VAR}` and `${VAR:-default}` are replaced by environment variables; `$${` is a literal `${`.
  Inside `{ }` and `[ ]` such a value needs quotes.
- Other forms, such as `$VAR` and `${VAR-default}`, are refused; `$$VAR` is a literal `$VAR`.
- Relative paths belong to the folder of the file in which they are, not to the working directory.
  `init` writes them so. Options of drivers and of Spark are passed on unchanged.
- CONFIG may be a folder: all its `*.yaml` and `*.yml` files are one configuration. They add names
  to `connections`, `pipelines` and `tables`. A name that two files have is an error, and so is any
  other block that two files have.
- `defaults` has blocks `pipeline`, `source` and `table`, which go below each pipeline, source and
  table. Blocks merge, lists are replaced, and the entry's own values win; `null` removes a default.
- Keys of blocks that begin with `x-` are ignored: they can hold anchors. `<<: *name` adds the keys
  of an anchor, and keys beside it win. Names of pipelines and the like may begin with `x-`.
- `${file:/run/secrets/NAME}` is replaced by the content of that file, without its last line break.
  When the file changes, a daemon ends its batch and exits with 4, to be restarted with the new
  secret. The same holds for key files named by storage options, `GOOGLE_APPLICATION_CREDENTIALS`
  or `AWS_SHARED_CREDENTIALS_FILE`.
- `blizzard validate FILE` reports every problem at once, with its line. Unknown keys are errors.
- `blizzard init` writes a first file, `configs/example.yaml` shows every key. `blizzard
  schema-of-config > blizzard.schema.json` lets editors complete keys and mark mistakes.
- Rarely needed settings stand in a block `advanced`. Without a default a key is not set.
- Names of pipelines, sources and tables consist of letters, digits, `_`, `.` and `-`.
- A duration is written as `30s`, `5m`, `1h`, `7d`, `1h30m` or `10 minutes`, or as in ISO 8601
  (`PT5M`, `P30D`). A number without a unit is refused; 0 needs none.
- `storage_options` take the names that object_store and delta-rs use (`AWS_REGION`,
  `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, …). What is not given comes from
  [variables of the environment](object-stores.md#variables-of-the-environment), then from the
  machine's or pod's identity.
"""


# Blocks that stand in the same place, by the key that tells them apart.
_KINDS: dict[type[BaseModel], str] = {
    SourceSettings: "`kind: files`",
    TableSourceSettings: "`kind: table`",
    HttpSourceSettings: "`kind: http`",
    DatabaseConnectionSettings: "databases",
    LakeConnectionSettings: "lakes",
    HttpConnectionSettings: "`driver: http`",
    FileUnits: "files",
    UnitSettings: "tables and APIs",
    **{each: f"`type: {get_args(each.model_fields['type'].annotation)[0]}`" for each in FORMATS},
}


def configuration_reference() -> str:
    """Return the whole document; a block in several places is described once."""
    places: dict[type[BaseModel], _Place] = {}
    for model, path in sorted(_places(Config, ()), key=lambda found: len(found[1])):
        places.setdefault(model, path)
    return "\n".join([_HEAD, *_sections(Config, (), places, {Config}, {})])


_Place: TypeAlias = tuple[str, ...]
_Blocks: TypeAlias = Iterator[tuple[type[BaseModel], _Place]]


def _places(model: type[BaseModel], path: _Place, outer: tuple[type, ...] = ()) -> _Blocks:
    """Each block with each place that it may stand in, but for those inside themselves."""
    yield model, path
    for name, field in model.model_fields.items():
        for nested, where in _inside(model, name, field, path):
            if nested not in (*outer, model):
                yield from _places(nested, where, (*outer, model))


def _inside(model: type[BaseModel], name: str, field: FieldInfo, path: _Place) -> _Blocks:
    """Yield the blocks that a key may hold, with their places."""
    annotation = field.annotation
    if isinstance(annotation, ForwardRef):  # its model was not complete yet
        annotation = get_type_hints(model)[name]
    here = (*path, field.alias or name)
    for nested, keyed in models_in(annotation):
        yield nested, (*here, "*") if keyed and get_origin(annotation) is dict else here


def _sections(
    model: type[BaseModel],
    path: _Place,
    places: Mapping[type[BaseModel], _Place],
    shown_models: set[type[BaseModel]],
    rows_of: dict[_Place, set[str]],
) -> Iterator[str]:
    """Yield the model's section, then those of the blocks below it, each once.

    Rows that another kind of the block has as well are only named, and so are optional blocks.
    """
    if path:
        kind = _KINDS.get(model)
        yield f"\n## `{_dotted(path)}`{f' ({kind})' if kind else ''}\n"
    yield _prose(model) + "\n"
    before = rows_of.setdefault(path, set())
    rows: list[str] = []
    shared: list[str] = []
    blocks: list[str] = []
    inner: list[tuple[type[BaseModel], _Place]] = []
    for name, field in model.model_fields.items():
        found = list(_inside(model, name, field, path))
        here = [
            each
            for each in found
            if places[each[0]] == each[1]
            and _wider(each[0], places) is None
            and each[0] not in shown_models
        ]
        shown_models |= {nested for nested, _ in here}
        there = [_link(each[0], places) for each in found if each not in here]
        key = field.alias or name
        linked = dict.fromkeys(["see below"] * bool(here) + there)
        row = _row(model, name, " or ".join(linked))
        if path and here and not there and not field.is_required() and not _default(field):
            blocks.append(f"`{key}`")
        elif row in before:
            shared.append(f"`{key}`")
        else:
            rows.append(row)
        inner += here
    before.update(rows)
    if rows:
        yield "\n".join(["| key | type | default | |\n|---|---|---|---|", *rows])
    if shared:
        yield f"\nKeys described above: {', '.join(shared)}."
    if blocks:
        yield f"\nBlocks described below: {', '.join(blocks)}."
    for nested, where in inner:
        yield from _sections(nested, where, places, shown_models, rows_of)


def _wider(
    model: type[BaseModel], places: Mapping[type[BaseModel], _Place]
) -> type[BaseModel] | None:
    """Return the block that has all keys of this one and more."""
    return next((each for each in places if each is not model and issubclass(each, model)), None)


def _link(model: type[BaseModel], places: Mapping[type[BaseModel], _Place]) -> str:
    """Return where a block is told that is not told here."""
    wider = _wider(model, places)
    if wider is None:
        return f"as `{_dotted(places[model])}`"
    more = ", ".join(
        f"`{field.alias or name}`"
        for name, field in wider.model_fields.items()
        if name not in model.model_fields
    )
    return f"as `{_dotted(places[wider])}`, without {more}"


def _dotted(path: _Place) -> str:
    return ".".join("NAME" if part == "*" else part for part in path)


def _prose(model: type[BaseModel]) -> str:
    text = re.sub(r"\n[ ]+", "\n", (model.__doc__ or "").strip())
    return text.replace("``", "`")


def _row(model: type[BaseModel], name: str, linked: str) -> str:
    field = model.model_fields[name]
    kind = linked or ("duration" if is_duration(field.metadata) else _type(field.annotation))
    bounds = ", ".join(filter(None, map(_bound, field.metadata)))
    if bounds:
        kind = f"{kind}, {bounds}"
    cells = (kind, _default(field), description(model, name))
    text = " | ".join(cell.replace("|", "\\|") for cell in cells)
    return f"| `{field.alias or name}` | {text} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or isinstance(value, BaseModel):
        return ""
    return f"`{json.dumps(as_written(field, value))}`"


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        kind = "duration" if is_duration(arguments[1:]) else _type(arguments[0])
        found = [each for part in arguments[1:] for each in getattr(part, "metadata", ())]
        return ", ".join([kind, *filter(None, map(_bound, found))])
    if origin is Literal:
        return " ".join(f"`{choice}`" for choice in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(_type(each) for each in arguments if each is not NoneType)
    if origin is dict:
        return f"map to {_type(arguments[1])}"
    if origin is list:
        return f"list of {_type(arguments[0])}"
    names = {str: "text", int: "whole number", float: "number", bool: "boolean"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _bound(found: Any) -> str:
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        value = getattr(found, name, None)
        if value is not None:
            return f"{sign} {value}"
    return ""


def generated() -> dict[str, str]:
    """Return the generated files by their paths in the repository."""
    return {
        "docs/reference/configuration.md": configuration_reference(),
        "configs/example.yaml": example_configuration(),
        "docs/reference/limits.md": limits_reference(),
    }


def main(arguments: Sequence[str]) -> str | None:
    """Write the files below the working directory, or with ``--check`` say which are stale."""
    files = {Path(name): text for name, text in generated().items()}
    if "--check" not in arguments:
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
        return None
    stale = [str(path) for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    return f"{', '.join(stale)}: not what the settings say; run `make docs`" if stale else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
