"""Conversion of a configuration of the original, the Rust implementation of this design. Pure.

Every key of the original is converted, or named with a reason. An unknown key is an error, so
nothing is dropped silently. References to the environment stay, and a secret in the file becomes
one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blizzard_core.redact import SECRET_NAME
from blizzard_core.settings.base import format_seconds
from blizzard_core.settings.yaml_file import BEGINS_VARIABLE, Key, dotted
from blizzard_core.text import did_you_mean

_BY_SPARK = "Spark's cores say how much is read at once (`spark.master`)"
_BY_CLIENT = "uploads are cut into parts as the store's client does it"
# Keys that have no counterpart, and why nothing is lost by it.
_NEEDLESS = {
    "batch_size": "rows are read in portions that are bounded by memory",
    "max_concurrent_files": _BY_SPARK,
    "sink_parallelism": _BY_SPARK,
    "max_concurrent_uploads": "`global.advanced.total_concurrency` bounds requests",
    "max_concurrent_parts": _BY_CLIENT,
    "part_size_mb": _BY_CLIENT,
    "min_multipart_size_mb": _BY_CLIENT,
    "rollover_timeout_secs": "files are closed with their batch, which"
    " `advanced.checkpoint.interval` bounds",
    "connection_pooling": "connections are always kept",
}
# Other spellings that object_store takes, as the names that are known here.
_OPTIONS = {
    "AWS_ENDPOINT": "AWS_ENDPOINT_URL",
    "ENDPOINT": "AWS_ENDPOINT_URL",
    "ENDPOINT_URL": "AWS_ENDPOINT_URL",
    "ACCESS_KEY_ID": "AWS_ACCESS_KEY_ID",
    "SECRET_ACCESS_KEY": "AWS_SECRET_ACCESS_KEY",
    "SESSION_TOKEN": "AWS_SESSION_TOKEN",
    "REGION": "AWS_REGION",
    "ALLOW_HTTP": "AWS_ALLOW_HTTP",
    "SERVICE_ACCOUNT": "GOOGLE_SERVICE_ACCOUNT",
    "SERVICE_ACCOUNT_PATH": "GOOGLE_SERVICE_ACCOUNT_PATH",
    "APPLICATION_CREDENTIALS": "GOOGLE_APPLICATION_CREDENTIALS",
    "ACCOUNT_NAME": "AZURE_STORAGE_ACCOUNT_NAME",
    "ACCOUNT_KEY": "AZURE_STORAGE_ACCOUNT_KEY",
    "SAS_TOKEN": "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_CLIENT_ID": "AZURE_STORAGE_CLIENT_ID",
    "AZURE_CLIENT_SECRET": "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_TENANT_ID": "AZURE_STORAGE_TENANT_ID",
}
_UNKNOWN = "; take it out, and see docs/reference/configuration.md for what it was to do"
_VARIABLE = re.compile(
    r"\$\$|\$\{(?P<braced>[A-Za-z_]\w*)(?:(?P<how>:?-)(?P<default>[^}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)"
)
_PATTERN = re.compile(r"(.*?)(?:/\*\*)?/\*\.ndjson\.gz")


@dataclass
class Converted:
    """Our configuration so far, what is to be known of it, and what cannot be converted."""

    document: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    # Values of secrets, which the document refers to by these names of the environment.
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def note(self, place: Key, text: str) -> None:
        """Tell something once."""
        note_text = f"{dotted(place)}: {text}" if place else text
        if note_text not in self.notes:
            self.notes.append(note_text)

    def problem(self, place: Key, text: str) -> None:
        """Refuse, and go on to find what else is wrong."""
        self.problems.append(f"{dotted(place)}: {text}")


class _Block:
    """A mapping of the original, of which every key has to be read."""

    def __init__(self, data: Any, place: Key, result: Converted) -> None:
        self.place = place
        self.result = result
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            result.problem(place, "must be a mapping")
            data = {}
        self._remaining = {str(key): value for key, value in data.items()}
        self._known = set(_NEEDLESS)

    def take(self, *names: str) -> Any:
        """Return the value under the first of these names that is present, else None."""
        self._known.update(names)
        found = [self._remaining.pop(name) for name in names if name in self._remaining]
        if len(found) > 1:
            self.result.problem(self.place, f"give one of {', '.join(names)}")
        return _referring(found[0], self.place, self.result) if found else None

    def block(self, name: str) -> _Block:
        """Return a block below; an empty one if it is missing."""
        self._known.add(name)
        return _Block(self._remaining.pop(name, None), (*self.place, name), self.result)

    def blocks(self, name: str) -> dict[str, _Block]:
        """Blocks by names of the operator's choice."""
        found = self.block(name)
        return {
            key: _Block(value, (*found.place, key), self.result)
            for key, value in found.remaining().items()
        }

    def remaining(self) -> Mapping[str, Any]:
        """Return the keys that were not read yet, as written."""
        return dict(self._remaining)

    def has(self, name: str) -> bool:
        """Return whether the key is present and was not read yet."""
        self._known.add(name)
        return name in self._remaining

    def check_remaining(self) -> None:
        """Tell of what has no counterpart, refuse what is unknown."""
        for name in self._remaining:
            if name in _NEEDLESS:
                self.result.note((*self.place, name), f"left out: {_NEEDLESS[name]}")
            else:
                near = did_you_mean(name, sorted(self._known))
                self.result.problem(
                    (*self.place, name),
                    f"is no key that is known of the original{near or _UNKNOWN}",
                )


def converted(documents: Sequence[Mapping[str, Any]]) -> Converted:
    """One configuration of the original's files: Blizzard's, Penguin's or both."""
    result = Converted()
    metrics: dict[str, str] = {}
    for data in documents:
        top = _Block(data, (), result)
        daemon = "penguin" if top.has("tables") and not top.has("pipelines") else "blizzard"
        if top.has("source"):
            _single(top, result)
        for name, block in top.blocks("pipelines").items():
            _put(result, ("pipelines", name), _pipeline(name, block, result))
        for name, block in top.blocks("tables").items():
            _put(result, ("tables", name), _table(block, result))
        if top.has("global"):
            result.document.setdefault("global", {}).update(_global(top.block("global")))
        address = _metrics(top, result)
        if address is not None:
            metrics[daemon] = address
        top.check_remaining()
    _put_metrics(result, metrics)
    return result


def _put(result: Converted, place: tuple[str, str], found: dict[str, Any]) -> None:
    kind, name = place
    blocks = result.document.setdefault(kind, {})
    if name in blocks:
        result.problem(place, "is in two of the files")
    blocks[name] = found


def _put_metrics(result: Converted, found: dict[str, str]) -> None:
    addresses = list(found.values())
    if not addresses:
        return
    result.document["metrics"] = {"address": addresses[0]}
    if len(set(addresses)) > 1:
        result.document["metrics"]["penguin_address"] = found["penguin"]


def _single(top: _Block, result: Converted) -> None:
    """Convert the form of the first releases: one source and one sink."""
    sink = top.block("sink")
    found = {
        "sources": {"main": _source(top.block("source"), result)},
        "sink": _sink(sink, result),
        **_rest_of_pipeline(top, result),
    }
    name = str(found["sink"].get("table_uri", "")).rstrip("/").rpartition("/")[2]
    name = re.sub(r"[^\w.-]", "_", name) or "events"
    result.note(
        ("source",), f"is the source main of a pipeline, which is called {name} by its table"
    )
    _put(result, ("pipelines", name), found)


def _pipeline(name: str, block: _Block, result: Converted) -> dict[str, Any]:
    if block.has("source"):
        source = _source(block.block("source"), result)
        # Before pipelines had several sources the state was named after the pipeline alone.
        sources = {"main": {"id": name, **source} if source["use_watermark"] else source}
    else:
        sources = {key: _source(one, result) for key, one in block.blocks("sources").items()}
    found = {"sources": sources, "sink": _sink(block.block("sink"), result)}
    found |= _rest_of_pipeline(block, result)
    block.check_remaining()
    return found


def _rest_of_pipeline(block: _Block, result: Converted) -> dict[str, Any]:
    found: dict[str, Any] = {"schema": _schema(block.block("schema"))}
    errors = block.block("error_handling")
    options = _options(errors.block("dlq_storage_options"))
    advanced = _take_present(errors, "dlq_path", "max_failures")
    if options and "dlq_path" in advanced:
        advanced["dlq_storage_options"] = options
    elif options:
        text = "left out: without dlq_path dead letters are in the table, with the sink's options"
        result.note((*errors.place, "dlq_storage_options"), text)
    errors.check_remaining()
    return found | ({"error_handling": {"advanced": advanced}} if advanced else {})


def _source(block: _Block, result: Converted) -> dict[str, Any]:
    found: dict[str, Any] = {"source_uri": _directory(block, result)}
    found["use_watermark"] = watermark = block.take("use_watermark") or False
    if watermark is False:
        result.note(
            block.place,
            "without use_watermark the original kept what it had read in memory alone, so a first"
            " start reads all that is there; docs/guides/move-from-auto-loader.md,"
            " Say what was read",
        )
    advanced = {"compression": block.take("compression") or "gzip"}
    found |= _lasting(block, "poll_interval_secs") | _filter(block)
    checkpoint = block.block("checkpoint")
    limits = _take_present(checkpoint, "interval_files") | _lasting(checkpoint, "interval_secs")
    checkpoint.check_remaining()
    advanced |= {"checkpoint": limits} if limits else {}
    found |= _storage(block) | _advanced(advanced)
    block.check_remaining()
    return found


def _directory(block: _Block, result: Converted) -> Any:
    uri = block.take("path", "source_uri")
    if not isinstance(uri, str) or "*" not in uri:
        return uri
    pattern = _PATTERN.fullmatch(uri)
    if pattern is None:
        result.problem((*block.place, "path"), "has a pattern; give the directory, which is"
                     " read with all below it")  # fmt: skip
        return uri
    result.note((*block.place, "path"), "is read with all directories below it")
    return pattern[1]


def _sink(block: _Block, result: Converted) -> dict[str, Any]:
    found: dict[str, Any] = {"table_uri": block.take("table_uri", "path")}
    advanced = _take_present(block, "file_size_mb", "compression", "row_group_size_bytes")
    found |= _partitions(block) | _storage(block) | _advanced(advanced)
    if "row_group_size_bytes" in advanced:
        result.note((*block.place, "row_group_size_bytes"), "counts rows as they lie in memory")
    block.check_remaining()
    return found


def _schema(block: _Block) -> dict[str, Any]:
    found = _take_present(block, "infer", "fields")
    coerces = block.take("coerce_conflicts_to_utf8") or False
    if found.get("infer"):
        found |= _advanced({"coerce_conflicts_to_utf8": coerces})
    block.check_remaining()
    return found


def _table(block: _Block, result: Converted) -> dict[str, Any]:
    found = _take_present(block, "table_uri") | _lasting(block, "poll_interval_secs")
    found |= (
        _take_present(block, "schema_evolution")
        | _advanced(_take_present(block, "delta_checkpoint_interval") | _filter(block))
        | _partitions(block)
        | _storage(block)
    )
    result.note(
        block.place,
        "Parquet files that the original has written and not committed wait an hour"
        " (foreign_min_age); let its Penguin commit them before you move",
    )
    block.check_remaining()
    return found


def _global(block: _Block) -> dict[str, Any]:
    found = _take_present(block, "total_concurrency") | _lasting(block, "poll_jitter_secs")
    block.check_remaining()
    return _advanced(found)


def _metrics(top: _Block, result: Converted) -> str | None:
    if not top.has("metrics"):
        result.note((), "metrics: the original served them on 0.0.0.0:9090 without being asked to;"
                  " here that takes the block")  # fmt: skip
        return None
    block = top.block("metrics")
    enabled = block.take("enabled")
    address = block.take("address") or "0.0.0.0:9090"
    block.check_remaining()
    return None if enabled is False else str(address)


def _advanced(found: dict[str, Any]) -> dict[str, Any]:
    """Return the block `advanced`, without it nothing."""
    return {"advanced": found} if found else {}


def _filter(block: _Block) -> dict[str, Any]:
    if not block.has("partition_filter"):
        return {}
    inner = block.block("partition_filter")
    template = inner.take("prefix_template")
    # Without it the original looked at the newest partition, and everything is read here.
    lookback = inner.take("lookback") or 0
    inner.check_remaining()
    return {"partition_filter": {"prefix_template": template, "lookback": lookback}}


def _partitions(block: _Block) -> dict[str, Any]:
    if not block.has("partition_by"):
        return {}
    inner = block.block("partition_by")
    found = _take_present(inner, "prefix_template")
    inner.check_remaining()
    return {"partition_by": found}


def _storage(block: _Block) -> dict[str, Any]:
    options = _options(block.block("storage_options"))
    return {"storage_options": options} if options else {}


def _options(block: _Block) -> dict[str, Any]:
    found = {}
    for key in block.remaining():
        name = _OPTIONS.get(key.upper(), key.upper())
        value = block.take(key)
        if SECRET_NAME.search(name) and isinstance(value, str) and "${" not in value:
            value = _secret(name, value, (*block.place, key), block.result)
        found[name] = value if isinstance(value, str) else str(value)
    return found


def _secret(name: str, value: str, place: Key, result: Converted) -> str:
    """Return a reference to the environment; each value has its own variable."""
    variable, number = name, 1
    while result.secrets.setdefault(variable, value) != value:
        number += 1
        variable = f"{name}_{number}"
    result.note(place, f"is read from the environment variable {variable}; set it")
    return f"${{{variable}}}"


def _take_present(block: _Block, *names: str) -> dict[str, Any]:
    return {name: block.take(name) for name in names if block.has(name)}


def _lasting(block: _Block, name: str) -> dict[str, Any]:
    """Return seconds, or a reference to them, as a duration."""
    if not block.has(name):
        return {}
    value = block.take(name)
    return {
        name.removesuffix("_secs"): f"{value}s" if isinstance(value, str) else format_seconds(value)
    }


def _referring(value: Any, place: Key, result: Converted) -> Any:
    """Return the value with references to the environment in our notation."""
    if isinstance(value, Mapping):
        return {key: _referring(item, place, result) for key, item in value.items()}
    if isinstance(value, list):
        return [_referring(item, place, result) for item in value]
    if not isinstance(value, str):
        return value

    def converted_reference(found: re.Match[str]) -> str:
        name = found["braced"] or found["bare"]
        if name is None:
            # A dollar that stands for itself; before some text it has to be said here, too.
            return "$$" if BEGINS_VARIABLE.match(value, found.end()) else "$"
        if found["how"] is None:
            return f"${{{name}}}"
        if found["how"] == "-":
            result.note(place, f"${{{name}-…}}: the default counts for an empty value, too")
        return f"${{{name}:-{found['default']}}}"

    return _VARIABLE.sub(converted_reference, value)
