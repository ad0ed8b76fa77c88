"""``configs/example.yaml`` from the settings themselves: every key, its default, its docstring.

A key without a default is shown with the first of its ``examples``, and commented out unless it
is required. The example of a map is a name in it, that of a block says which of its keys
are shown as if they were given. Where a map has blocks of several kinds, its examples are
a name for each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from blizzard_core.settings.document import Config
from blizzard_core.settings.durations import as_written
from blizzard_core.settings.load import models_in

_HEAD = """\
# Every key, at its default. What is commented out has none and is shown with an example.
# Generated from the settings by `make docs`; docs/configuration.md says more of each.
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
        beside = f"{line:<{_REMARK_COLUMN}} # {self.remark}"
        return beside if len(beside) <= _WIDTH else f"{self.indent}# {self.remark}\n{line}"


def example_configuration() -> str:
    """The whole file."""
    blocks = ("\n".join(map(str, _key(*item, None))) for item in Config.model_fields.items())
    return "\n".join([_HEAD, *(f"{block}\n" for block in blocks)])


def _block(model: type[BaseModel], given: Mapping[str, Any]) -> list[_Line]:
    fields = model.model_fields.items()
    return [line for name, field in fields for line in _key(name, field, given.get(name))]


def _key(name: str, field: FieldInfo, given: Any) -> list[_Line]:
    """The lines of one key; ``given`` is its value in the example of the block it is in."""
    default = None
    if not field.is_required():
        default = as_written(field, field.get_default(call_default_factory=True))
    value = default if given is None else given
    example = field.examples[0] if field.examples else None
    shown = example if value in _EMPTY and example is not None else value
    models, in_map = _inside(field)
    text = ""
    inner: list[_Line] = []
    if isinstance(shown, list) and len(_flow(shown)) > _REMARK_COLUMN:
        inner = _items(shown)
    elif not models:
        text = f" {_flow(shown)}"
    elif in_map:
        for entry, model in zip(field.examples or [], models, strict=True):
            inner += [_Line("", f"{entry}:"), *_indented(_block(model, _shown(model)))]
    else:
        inner = _block(models[0], shown if isinstance(shown, Mapping) else {})
    lines = [_Line("", f"{field.alias or name}:{text}", _remark(field)), *_indented(inner)]
    has_default = default not in _EMPTY or (example is None and default is not None)
    if has_default or in_map or field.is_required() or given is not None:
        return lines
    return [
        _Line(indent, f"# {text}", remark) if at == 0 else _Line(f"# {indent}", text, remark)
        for at, (indent, text, remark) in enumerate(lines)
    ]


def _inside(field: FieldInfo) -> tuple[list[type[BaseModel]], bool]:
    """The blocks that a key may hold, and whether in a map of names; a list is a value."""
    if list in {get_origin(kind) for kind in (field.annotation, *get_args(field.annotation))}:
        return [], False
    found = list(models_in(field.annotation))
    return [model for model, _ in found], any(keyed for _, keyed in found)


def _shown(model: type[BaseModel]) -> Mapping[str, Any]:
    """What an entry of a map has to be given where one of several keys is needed."""
    extra = model.model_config.get("json_schema_extra")
    return extra if isinstance(extra, Mapping) else {}


def _indented(lines: list[_Line]) -> list[_Line]:
    return [line._replace(indent=f"  {line.indent}") for line in lines]


def _items(values: list[Any]) -> list[_Line]:
    """A list with an item in each line, or over several where one is too long."""
    found = []
    for value in values:
        text = f"- {_flow(value)}"
        if len(text) > _WIDTH - 10:
            text = yaml.safe_dump([value], default_flow_style=None, sort_keys=False)
        found += [_Line("", line) for line in text.splitlines()]
    return found


def _flow(value: Any) -> str:
    """A value in one line of YAML."""
    text: str = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, sort_keys=False, allow_unicode=True
    )
    text = text.removesuffix("\n").removesuffix("\n...")
    return f"{{ {text[1:-1]} }}" if text.startswith("{") and text != "{}" else text


def _remark(field: FieldInfo) -> str:
    """The choices, if it is one of some words, and the docstring, as plain text."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    text = " ".join((field.description or "").split()).replace("`", "").removesuffix(".")
    return ": ".join(filter(None, [" | ".join(choices), text]))
