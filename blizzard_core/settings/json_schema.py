"""The JSON schema of a configuration, for editors: names, types, choices and descriptions.

It accepts all that `validate` accepts in the documented notation, and some more: whether blocks fit
each other is for `validate`. Nothing is required that `defaults` or another file may give.

The models do not keep their docstrings: reading sources costs each start as much as making them.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, get_args

from pydantic import BaseModel

from blizzard_core.settings.base import Settings, as_written
from blizzard_core.settings.document import Config, PipelineSettings
from blizzard_core.settings.formats import FORMATS
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.load import models_in
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.tables import SinkAdvanced, SinkSettings, TableSettings


def description(model: type[BaseModel], name: str) -> str:
    """Return the docstring of a field in one line; ``""`` if it has none."""
    found = (_docstrings(each).get(name) for each in model.__mro__ if issubclass(each, BaseModel))
    return next(filter(None, found), "")


@cache
def _docstrings(model: type[BaseModel]) -> Mapping[str, str]:
    (block,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(block.body)  # type: ignore[attr-defined]  # a class has one
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


_SOURCES = (SourceSettings, TableSourceSettings, HttpSourceSettings)
_WITH_DEFAULTS = (PipelineSettings, *_SOURCES, SinkSettings, TableSettings)
_VARIABLE = {"type": "string", "pattern": r"\$\{"}
_REMARKS = frozenset({"default", "description", "examples"})
_SCALARS = frozenset({"boolean", "integer", "number"})


def config_schema() -> dict[str, Any]:
    """Return the schema, as JSON Schema 2020-12."""
    whole = Config.model_json_schema()
    blocks = whole.pop("$defs")
    for model in set(_models(Config)):
        name = model.__name__
        _complete(model, whole if model is Config else blocks[name])
        if model is not Config:
            blocks[name] = _with_variables(blocks[name])
        if issubclass(model, Settings) and model.text_key:
            blocks[name] = {"anyOf": [{"type": "string"}, blocks[name]]}
    whole["properties"]["defaults"] = _block(
        "Put below each pipeline, source and table; their own values win.",
        pipeline=_reference(PipelineSettings),
        source={"anyOf": [_reference(each) for each in _SOURCES]},
        table=_reference(TableSettings),
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of Blizzard and Penguin",
        **_with_variables(whole),
        "$defs": blocks,
    }


def _models(
    model: type[BaseModel], seen: frozenset[type] = frozenset()
) -> Iterator[type[BaseModel]]:
    """Yield the block and those in it."""
    yield model
    for field in model.model_fields.values():
        for inner, _ in models_in(field.annotation):
            if inner not in seen:
                yield from _models(inner, seen | {model, inner})


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": f"#/$defs/{model.__name__}"}


def _block(text: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "description": text,
        "properties": properties,
        "patternProperties": {"^x-": {}},
        "additionalProperties": False,
    }


def _complete(model: type[BaseModel], block: dict[str, Any]) -> None:
    """Add what pydantic does not know, and remove what `defaults` may give."""
    properties = block["properties"]
    for name, field in model.model_fields.items():
        key = properties[field.alias or name]
        key.pop("title", None)
        key["description"] = description(model, name)
        if "default" in key:
            key["default"] = as_written(field, key["default"])
    if model in _WITH_DEFAULTS:
        block.pop("required", None)
    if model is SourceSettings:
        properties["path"] = properties["source_uri"]
        names = [get_args(each.model_fields["type"].annotation)[0] for each in FORMATS]
        properties["format"]["oneOf"].append({"enum": names})
    if model is SinkAdvanced:
        properties["compression"]["enum"].append("none")
    block["patternProperties"] = {"^x-": {}}
    block.pop("title", None)


def _with_variables(schema: Any) -> Any:
    """Return a schema in which each value may be a variable; several blocks may fit."""
    if isinstance(schema, list):
        return [*map(_with_variables, schema)]
    if not isinstance(schema, dict):
        return schema
    if "pattern" in schema:
        return {**schema, "pattern": f"{schema['pattern']}|{_VARIABLE['pattern']}"}
    if str(schema.get("type")) in _SCALARS or "enum" in schema:
        remarks = {key: value for key, value in schema.items() if key in _REMARKS}
        return {"anyOf": [schema, _VARIABLE], **remarks}
    found = {
        key: _of_each(value) if key in {"properties", "patternProperties"} else value
        for key, value in schema.items()
    }
    for key in {"anyOf", "items", "additionalProperties"} & found.keys():
        found[key] = _with_variables(found[key])
    if "oneOf" in found:
        found["anyOf"] = _with_variables(found.pop("oneOf"))
    if "properties" not in found and "patternProperties" in found:
        found["additionalProperties"] = False
    return found


def _of_each(schemas: dict[str, Any]) -> dict[str, Any]:
    return {name: _with_variables(schema) for name, schema in schemas.items()}
