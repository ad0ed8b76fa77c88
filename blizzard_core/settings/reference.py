"""``docs/configuration.md`` from the settings: ``python -m blizzard_core.settings.reference``.

Types, defaults and bounds come from the models, the prose from their docstrings and the
remarks from those of the fields. With ``--check`` nothing is written, and what is out of
date is an error; so it is for ``configs/example.yaml`` (`blizzard_core.settings.example`)
and ``docs/limits.md`` (`blizzard_core.settings.limits`).
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
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from blizzard_core.settings.connections import DatabaseConnection, HttpConnection, LakeConnection
from blizzard_core.settings.document import Config
from blizzard_core.settings.durations import as_written, is_duration
from blizzard_core.settings.example import example_configuration
from blizzard_core.settings.limits import limits_reference
from blizzard_core.settings.load import models_in
from blizzard_core.settings.query_sources import HttpSourceSettings, TableSourceSettings
from blizzard_core.settings.sources import FileUnits, SourceSettings
from blizzard_core.settings.units import UnitSettings

_HEAD = """\
# Configuration

One YAML file for both daemons. Generated from the settings by `make docs`; edit
the docstrings of `blizzard_core/settings/document.py` and of what it imports.

- `${VAR}` and `${VAR:-default}` are filled in from the environment, `$${` is a literal `${`.
  Inside `{ }` and `[ ]` such a value needs quotes.
- `${file:/run/secrets/NAME}` is filled in from that file, without the line break at its end. When
  it is renewed a daemon ends its batch and exits with 4, to be started again with the new one. So
  it does for a key file that storage options, `GOOGLE_APPLICATION_CREDENTIALS` or
  `AWS_SHARED_CREDENTIALS_FILE` name.
- `blizzard validate FILE` reports every problem at once, with its line. Unknown keys are errors.
- `blizzard init` writes a first file, `configs/example.yaml` shows every key.
- Names of pipelines, sources and tables consist of letters, digits, `_`, `.` and `-`.
- A duration is written as `30s`, `5m`, `1h`, `7d`, `1h30m` or `10 minutes`, or as in ISO 8601
  (`PT5M`, `P30D`). A number without a unit is refused; 0 needs none.
- `storage_options` take the names that object_store and delta-rs use (`AWS_REGION`,
  `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME`, …). What is not given comes from
  the standard credential chain of the store.
"""


# Blocks that stand in the same place, by the key that tells them apart.
_KINDS: dict[type[BaseModel], str] = {
    SourceSettings: "`kind: files`",
    TableSourceSettings: "`kind: table`",
    HttpSourceSettings: "`kind: http`",
    DatabaseConnection: "databases",
    LakeConnection: "lakes",
    HttpConnection: "`driver: http`",
    FileUnits: "files",
    UnitSettings: "tables and APIs",
}


def configuration_reference() -> str:
    """The whole document; a block that may stand in several places is told in the first one."""
    places: dict[type[BaseModel], _Place] = {}
    for model, path in sorted(_places(Config, ()), key=lambda found: len(found[1])):
        places.setdefault(model, path)
    return "\n".join([_HEAD, *_sections(Config, (), places, {Config})])


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
    """The blocks that a key may hold, with their places."""
    annotation = field.annotation
    if isinstance(annotation, ForwardRef):  # of a model that was being made then
        annotation = get_type_hints(model)[name]
    here = (*path, field.alias or name)
    for nested, keyed in models_in(annotation):
        yield nested, (*here, "*") if keyed and get_origin(annotation) is dict else here


def _sections(
    model: type[BaseModel],
    path: _Place,
    places: Mapping[type[BaseModel], _Place],
    told: set[type[BaseModel]],
) -> Iterator[str]:
    """The model's section and those of the blocks in it that have their place there, once."""
    if path:
        kind = _KINDS.get(model)
        yield f"\n## `{_dotted(path)}`{f' ({kind})' if kind else ''}\n"
    yield _prose(model) + "\n"
    yield "| key | type | default | |\n|---|---|---|---|"
    inner: list[tuple[type[BaseModel], _Place]] = []
    for name, field in model.model_fields.items():
        found = list(_inside(model, name, field, path))
        here = [each for each in found if places[each[0]] == each[1] and each[0] not in told]
        told |= {nested for nested, _ in here}
        there = [f"as `{_dotted(places[each[0]])}`" for each in found if each not in here]
        yield _row(field.alias or name, field, " or ".join(["see below"] * bool(here) + there))
        inner += here
    for nested, where in inner:
        yield from _sections(nested, where, places, told)


def _dotted(path: _Place) -> str:
    return ".".join("NAME" if part == "*" else part for part in path)


def _prose(model: type[BaseModel]) -> str:
    text = re.sub(r"\n[ ]+", "\n", (model.__doc__ or "").strip())
    return text.replace("``", "`")


def _row(key: str, field: FieldInfo, linked: str) -> str:
    kind = linked or ("duration" if is_duration(field.metadata) else _type(field.annotation))
    bounds = ", ".join(filter(None, map(_bound, field.metadata)))
    if bounds:
        kind = f"{kind}, {bounds}"
    remark = " ".join((field.description or "").split())
    return f"| `{key}` | {_cell(kind)} | {_cell(_default(field))} | {_cell(remark)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    value = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, BaseModel):
        return "as below"
    if value is None:
        return "not set"
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
    names = {str: "text", int: "whole number", float: "number", bool: "`true` `false`"}
    return names.get(annotation, getattr(annotation, "__name__", str(annotation)))


def _bound(found: Any) -> str:
    for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
        value = getattr(found, name, None)
        if value is not None:
            return f"{sign} {value}"
    return ""


def generated() -> dict[str, str]:
    """The files that are made of the settings and bounds, by their paths in the repository."""
    return {
        "docs/configuration.md": configuration_reference(),
        "configs/example.yaml": example_configuration(),
        "docs/limits.md": limits_reference(),
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
