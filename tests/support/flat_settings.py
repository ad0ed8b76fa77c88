"""Settings as tests write them: keys of `advanced` may stand beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel

M = TypeVar("M", bound=BaseModel)


def nested(model: type[BaseModel], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return a block with such keys where the product has them, also in the blocks within it."""
    fields = {each.alias or name: each for name, each in model.model_fields.items()}
    inner = _advanced_of(model)
    found: dict[str, Any] = {}
    moved: dict[str, Any] = {}
    for key, value in block.items():
        if key in fields:
            found[key] = _within(fields[key].annotation, value)
        elif key in inner:
            moved[key] = value
        else:
            found[key] = value
    return {**found, "advanced": {**moved, **found.get("advanced", {})}} if moved else found


def _within(annotation: Any, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for kind in _kinds(annotation):
        if get_origin(kind) is not None:  # names of somebody's choice
            return {name: _within(get_args(kind)[1], each) for name, each in value.items()}
        fields = {each.alias or name for name, each in kind.model_fields.items()}
        if value.keys() <= fields | _advanced_of(kind).keys():
            return nested(kind, value)
    return value


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield the models that a value may be of, and mappings of such."""
    origin = get_origin(annotation)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    if is_mapping or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        yield annotation
    elif origin is not None:
        for each in get_args(annotation):
            yield from _kinds(each)


def _advanced_of(model: type[BaseModel]) -> dict[str, Any]:
    field = model.model_fields.get("advanced")
    fields = getattr(field and field.annotation, "model_fields", {})
    return {each.alias or name: each for name, each in fields.items()}


def settings_of(model: type[M], **block: Any) -> M:
    """Return a block of settings of these keys."""
    return model.model_validate(nested(model, block))
