"""The configuration file, read and checked as a whole.

Each daemon checks the whole file. One `ConfigError` lists all problems with path and line: unknown
keys, wrong types, missing environment variables, conflicting resources. Values from the environment
may be secrets, so no message contains them.

`blizzard_core.settings.checks.places` finds places that two parts of the file would share.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from blizzard_core import redact
from blizzard_core.errors import ConfigError
from blizzard_core.settings.checks import Check, cross_field_problems
from blizzard_core.settings.checks.places import conflicts
from blizzard_core.settings.document import ADDRESS, Config
from blizzard_core.settings.formats import FORMATS
from blizzard_core.settings.merging import KEY_FILE_OPTIONS, load_document
from blizzard_core.settings.yaml_file import Document, Key
from blizzard_core.text import did_you_mean

_NAMES = "names consist of letters, digits, `_`, `.` and `-`"
_TRUTH, _WHOLE, _NUMBER = "must be true or false", "must be a whole number", "must be a number"
_QUOTES = "; put quotes around it"
_TEXT, _LIST, _BLOCK = "must be text", "must be a list", "must be a block of keys"

# Messages by the type of pydantic's error; braces contain fields of its context.
_ERROR_TEXTS = {
    "bool_parsing": _TRUTH,
    "bool_type": _TRUTH,
    "dict_type": _BLOCK,
    "extra_forbidden": "unknown key",
    "finite_number": "must be a number, and not infinite",
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": "must be a whole number of fewer digits",
    "int_type": _WHOLE,
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": _LIST,
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_attributes_type": _BLOCK,
    "model_type": _BLOCK,
    "string_too_long": "must have {max_length} characters at most",
    "string_type": f"{_TEXT}{_QUOTES}",
    "too_long": "has {actual_length} entries, {max_length} at most are allowed",
    "tuple_type": _LIST,
    "union_tag_invalid": "must be one of {expected_tags}",
}
# Messages for texts that do not match a pattern.
_LOOKS = {
    r"^[A-Za-z0-9][A-Za-z0-9_.-]*$": _NAMES,
    r"^https?://[^/?#]+": "must be an address, as in `https://api.example.com/v2`",
    ADDRESS: "must be a host and a port of at most 65535, as in `0.0.0.0:9090`",
}
# A step in pydantic's locations that names the type it tried; the file has no such step.
_TRIED = re.compile(r".*\[.*\]|str|int|float|bool|constrained-\w+")


def error_text(item: Mapping[str, Any]) -> str:
    """Return the message for one of pydantic's errors."""
    kind, context = item["type"], item.get("ctx", {})
    if kind in _ERROR_TEXTS:
        return _ERROR_TEXTS[kind].format_map(
            {name: _shown(value) for name, value in context.items()}
        )
    if kind == "string_pattern_mismatch":
        named = _NAMES if "[key]" in item["loc"] else _LOOKS.get(context["pattern"])
        return named or f"must match {context['pattern']}"
    if kind in ("string_too_short", "too_short"):
        few = context["min_length"]
        return "must not be empty" if few == 1 else f"must have {few} at least"
    return str(item["msg"]).removeprefix("Value error, ")


def _shown(value: Any) -> Any:
    return f"{value:g}" if isinstance(value, float) else value


def is_type_marker(part: str | int) -> bool:
    """Return whether a step of a location names a type that was tried."""
    return isinstance(part, str) and _TRIED.fullmatch(part) is not None


def join_alternatives(found: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the problems, with all alternatives of one place in one problem."""
    for place, messages in groupby(found, lambda each: each[0]):
        texts = list(dict.fromkeys(message for _, message in messages))
        if len(texts) > 1 and all(text.startswith("must be ") for text in texts):
            kinds = (text.removeprefix("must be ").removesuffix(_QUOTES) for text in texts)
            texts = [f"must be {' or '.join(kinds)}"]
        yield from (f"{place}: {text}" for text in texts)


def _without_outer(items: Sequence[Any], places: Container[Key]) -> Iterator[Any]:
    """Yield the errors but those of an alternative, such as text, where a block has errors."""
    blocks = {item["loc"][:end] for item in items for end in range(len(item["loc"]) - 1)}
    for item in items:
        *outer, tried = item["loc"]
        # A table may be called `str`, and the name of an entry (`[key]`) may be wrong itself.
        is_named = tried == "[key]" or _place_of(item, places)[-1:] == (tried,)
        if is_named or not is_type_marker(tried) or tuple(outer) not in blocks:
            yield item


_KEY_FILE_VARIABLES = ("GOOGLE_APPLICATION_CREDENTIALS", "AWS_SHARED_CREDENTIALS_FILE")


def load_config(
    path: Path, environment: Mapping[str, str] | None = None, checks: Sequence[Check] = ()
) -> Config:
    """Return the valid configuration. Raises `ConfigError` with every problem found.

    ``checks`` are further checks of the caller; their problems get line numbers, too.
    """
    variables = os.environ if environment is None else environment
    document = load_document(path, variables)
    problems = list(document.problems)
    config: Config | None = None
    try:
        config = Config.model_validate(document.data)
    except ValidationError as error:
        items = error.errors(include_url=False, include_input=False)
        problems += join_alternatives(
            [
                (document.locate(_place_of(item, document.places)), _message(item))
                for item in _without_outer(items, document.places)
            ]
        )
        config = _without_faults(document, items)
        if document.problems:
            # A missing variable leaves an empty string behind, which is reported once.
            unset = {line.partition(": ")[0] for line in document.problems}
            problems = [
                *document.problems,
                *(
                    p
                    for p in problems[len(document.problems) :]
                    if p.partition(": ")[0] not in unset
                ),
            ]
    problems += conflicts(document)
    if config is not None:
        for check in (cross_field_problems, *checks):
            problems += [f"{document.locate(key)}: {text}" for key, text in check(config)]
    if config is not None and not problems and not config.pipelines and not config.tables:
        problems.append("(top level): give at least one entry under `pipelines` or `tables`")
    if problems or config is None:
        # A wrong default is found wherever it is used.
        raise ConfigError(document.source, [*map(document.as_written, dict.fromkeys(problems))])
    _learn_secrets(config)
    redact.learn_values(document.secrets.texts())
    for name in _key_files(config, variables):
        document.secrets.watch(name)
    return config.filled_from(document.secrets)


# What checks of a pipeline read: without it they would find what is not so.
_FAR_REACHING = frozenset(
    {
        *("schema", "partition_by", "sort_by", "metadata_columns", "event_time"),
        *("deduplicate_by", "transform", "units", "watermark", "kind", "format", "connection"),
        "use_watermark",
        "path_columns",
    }
)
_ENTRY = 2  # the steps to a pipeline, a table or a connection


def _without_faults(document: Document, items: Sequence[Any]) -> Config | None:
    """Return the configuration without what is faulty, so that the rest can be checked further.

    Values that checks read take their whole pipeline along. None without a connection, or if
    nothing is left.
    """
    places = {_place_of(item, document.places): item["type"] for item in items}
    unknown = {place for place, kind in places.items() if kind == "extra_forbidden"}
    faulty = places.keys() - unknown
    if any(len(place) < _ENTRY or place[0] == "connections" for place in faulty):
        return None
    far = {place for place in faulty if not _FAR_REACHING.isdisjoint(map(str, place))}
    entries = {place[:_ENTRY] for place in far}
    for left_out in ({*unknown, *(faulty - far), *entries}, {place[:_ENTRY] for place in faulty}):
        data = document.data
        for place in sorted({*left_out, *unknown}, key=_from_the_end):
            data = _without(data, place)
        with suppress(ValidationError):
            return Config.model_validate(data)
    return None


def _from_the_end(place: Key) -> list[tuple[int, str]]:
    """Return a key by which later entries of a list are left out before earlier ones."""
    return [(-step, "") if isinstance(step, int) else (0, step) for step in place]


def _without(data: Any, place: Key) -> Any:
    """Return a copy of the data without the value at a place."""
    if not place:
        return data
    first, rest = place[0], place[1:]
    if isinstance(data, dict):
        return {
            name: _without(value, rest) if str(name) == first else value
            for name, value in data.items()
            if rest or str(name) != first
        }
    if isinstance(data, list) and isinstance(first, int) and first < len(data):
        return [
            _without(value, rest) if index == first else value
            for index, value in enumerate(data)
            if rest or index != first
        ]
    return data


def _key_files(config: Config, variables: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of key files, which the clients of stores read once."""
    yield from filter(None, map(variables.get, _KEY_FILE_VARIABLES))
    for name, options in _hidden_values(config):
        if name.endswith("storage_options"):
            yield from (file for key, file in options.items() if key.upper() in KEY_FILE_OPTIONS)


def _hidden_values(block: BaseModel) -> Iterator[tuple[str, Any]]:
    """Yield the values that may hold secrets, with their keys, also of the blocks within it."""
    for name, field in type(block).model_fields.items():
        value = getattr(block, name)
        if value and not field.repr:
            yield name, value
        for inner in value.values() if isinstance(value, dict) else [value]:
            if isinstance(inner, BaseModel):
                yield from _hidden_values(inner)


def _learn_secrets(config: Config) -> None:
    """Mask the secrets of the configuration in all later messages."""
    for _, value in _hidden_values(config):
        if isinstance(value, str):
            redact.learn_values([value])
        else:
            redact.learn({key: each for key, each in value.items() if isinstance(each, str)})
    for connection in config.connections.values():
        redact.learn_values(connection.secret_values)


# Kinds of blocks. The kind is a step in pydantic's locations; the file has no such step.
_KINDS = frozenset({"files", "table", "http", "database", "lake"})
_FORMATS = frozenset(get_args(each.model_fields["type"].annotation)[0] for each in FORMATS)


def _place_of(item: Any, places: Container[Key]) -> Key:
    place: Key = ()
    for part in _place(item["loc"]):
        if not is_type_marker(part) or (*place, part) in places:
            place = (*place, part)
    if item["type"] == "union_tag_invalid":
        return (*place, "type" if place[-1] == "format" else "kind")
    return place


def _place(location: tuple[str | int, ...]) -> Key:
    """Pydantic's location as a path in the file (dictionary keys and kinds add a marker)."""
    at = {"pipelines": 4, "connections": 2}.get(str(location[0]) if location else "")
    return tuple(
        part
        for step, part in enumerate(location)
        if part != "[key]"
        and not (step == at and part in _KINDS)
        and not (part in _FORMATS and step and location[step - 1] == "format")
    )


# The remedy for unknown keys that belong elsewhere, by their last two steps.
_ELSEWHERE: Mapping[tuple[str, ...], str] = {
    ("event_time", "idle_after"): "give it in the event_time of the source that may be idle",
    ("request", "method"): "a request with `body` is a POST, any other a GET",
    ("request", "headers"): "give them in the connection, which sends them with each request",
}


def _message(item: Any) -> str:
    if item["type"] != "extra_forbidden":
        return error_text(item)
    *outer, name = map(str, item["loc"])
    block = [part for part in outer if part != "[key]"]
    known = {*keys_at(Config, block)}
    if remedy := _ELSEWHERE.get((*block[-1:], name)):
        hint = f": {remedy}"
    elif name in keys_at(Config, [*block, "advanced"]):
        hint = ": it belongs into `advanced`"
    elif any(
        name in keys_at(Config, [*block, *at], of_any_kind=True) for at in ((), ("advanced",))
    ):
        hint = ": another kind of this block has it"
    else:
        hint = did_you_mean(name, known)
    return f"{error_text(item)}{hint}"


def keys_at(
    annotation: Any, location: Sequence[str], *, of_any_kind: bool = False
) -> Iterator[str]:
    """Yield the keys that a block may have, as written in the file.

    ``location`` has a step for the kind of a block that has several, as pydantic's have.
    """
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if not location:
                yield field.alias or name
            elif location[0] in {name, field.alias}:
                yield from keys_at(field.annotation, location[1:], of_any_kind=of_any_kind)
        return
    arguments = get_args(annotation)
    tag = next((each.tag for each in arguments if isinstance(each, Tag)), None)
    if tag is not None and not of_any_kind and location[:1] != [tag]:
        return
    below = location[1:] if tag is not None or get_origin(annotation) in {dict, list} else location
    for argument in arguments:
        yield from keys_at(argument, below, of_any_kind=of_any_kind)


def models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    """Yield the settings inside a type, and whether a map or a list is between."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False
    keyed = get_origin(annotation) in {dict, list}
    for argument in get_args(annotation):
        yield from ((model, keyed or inner) for model, inner in models_in(argument))
