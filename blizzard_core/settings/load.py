"""The configuration file: read, checked as a whole, every problem told at once.

The whole file is checked by whichever daemon reads it: unknown keys, wrong
types, missing environment variables and conflicting resources are collected
and raised together as one `ConfigError`, each with its path and line. Values
never appear in a message, since a value may be a secret.

What two parts of the file would share is in `blizzard_core.settings.conflicts`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from blizzard_core import redact
from blizzard_core.errors import ConfigError
from blizzard_core.settings.conflicts import conflicts
from blizzard_core.settings.document import Config
from blizzard_core.settings.yaml_file import Key, load_yaml


def load_config(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """The validated configuration. Raises `ConfigError` with every problem found."""
    document = load_yaml(path, os.environ if environment is None else environment)
    problems = list(document.problems)
    config: Config | None = None
    try:
        config = Config.model_validate(document.data)
    except ValidationError as error:
        problems += [
            f"{document.locate(_place(item['loc']))}: {_message(item)}"
            for item in error.errors(include_url=False, include_context=False, include_input=False)
        ]
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
    if config is not None and not config.pipelines and not config.tables:
        problems.append("(top level): give at least one entry under `pipelines` or `tables`")
    if problems or config is None:
        raise ConfigError(document.source, problems)
    _learn_secrets(config)
    return config


def _learn_secrets(config: Config) -> None:
    """Have every message masked from now on, whoever writes it."""
    redact.learn(config.spark.conf)
    for pipeline in config.pipelines.values():
        redact.learn(pipeline.sink.storage_options)
        for source in pipeline.sources.values():
            redact.learn(source.storage_options)
    for table in config.tables.values():
        redact.learn(table.storage_options)


def _place(location: tuple[str | int, ...]) -> Key:
    """Pydantic's location as a path in the file (dictionary keys add a marker)."""
    return tuple(part for part in location if part != "[key]")


def _message(item: Any) -> str:
    kind = item["type"]
    if kind == "extra_forbidden":
        return f"unknown key{_near(item['loc'])}"
    if kind == "missing":
        return "is required"
    if kind == "string_pattern_mismatch" and "[key]" in item["loc"]:
        return "names consist of letters, digits, `_`, `.` and `-`"
    return str(item["msg"]).removeprefix("Value error, ")


def _near(location: tuple[str | int, ...]) -> str:
    """The known key that an unknown one was probably meant to be."""
    known = keys_at(Config, location[:-1])
    close = difflib.get_close_matches(str(location[-1]), known, 1)
    return f"; did you mean {close[0]}?" if close else ""


def keys_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The keys that a block may have, as they are written in the file."""
    if not location:
        return [field.alias or name for name, field in model.model_fields.items()]
    for name, field in model.model_fields.items():
        if location[0] in {name, field.alias}:
            for inner, keyed in models_in(field.annotation):
                return keys_at(inner, location[2 if keyed else 1 :])
    return []


def models_in(annotation: Any) -> Iterator[tuple[type[BaseModel], bool]]:
    """The settings inside a type, and whether names or numbers lie between (a map, a list)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, False
    keyed = get_origin(annotation) in {dict, list}
    for argument in get_args(annotation):
        yield from ((model, keyed or inner) for model, inner in models_in(argument))
