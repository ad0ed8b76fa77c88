"""Extras that a configuration needs, and the keys that need them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from blizzard_core.errors import ConfigError
from blizzard_core.extras import (
    EXTRAS,
    Extra,
    extra_of_driver,
    extra_of_format,
    extra_of_scheme,
    install_command,
    missing_extra,
)
from blizzard_core.settings.document import AnySource, Config
from blizzard_core.storage.opening import scheme_of


@dataclass(frozen=True, slots=True)
class ExtraNeed:
    """``where`` is the first key of the configuration that needs the extra."""

    extra: Extra
    where: str


def needed_extras(config: Config) -> list[ExtraNeed]:
    """Return what Blizzard needs to run the configuration, each extra once."""
    return [*_first_of_each(_needs(config)), *report_extras(config)]


def report_extras(config: Config) -> list[ExtraNeed]:
    """Return what the reports of runs need."""
    named = {"lineage": config.lineage, "traces": config.traces}
    return [ExtraNeed(EXTRAS[name], name) for name, target in named.items() if target]


def store_extras(places: Iterable[tuple[str, str]]) -> list[ExtraNeed]:
    """Return what the stores of ``places`` need (key and URI), each extra once."""
    found = ((extra_of_scheme(scheme_of(uri)), where) for where, uri in places)
    return _first_of_each(found)


def check_extras(needs: Iterable[ExtraNeed]) -> None:
    """Raise `ConfigError` with a problem for each extra that is not installed.

    Each names one command, which installs all of them.
    """
    missing = [(need, module) for need in needs if (module := need.extra.missing())]
    command = install_command(need.extra.name for need, _module in missing)
    problems = [
        f"{need.where}: {missing_extra(need.extra, module, command)}" for need, module in missing
    ]
    if problems:
        raise ConfigError("configuration", problems)


def _first_of_each(needs: Iterable[tuple[Extra | None, str]]) -> list[ExtraNeed]:
    first: dict[str, ExtraNeed] = {}
    for extra, where in needs:
        if extra is not None:
            first.setdefault(extra.name, ExtraNeed(extra, where))
    return list(first.values())


def _needs(config: Config) -> Iterator[tuple[Extra | None, str]]:
    for name, pipeline in config.pipelines.items():
        here = f"pipelines.{name}"
        yield EXTRAS["spark"], here
        for source_name, source in pipeline.sources.items():
            yield from _source_needs(config, source, f"{here}.sources.{source_name}")
        yield extra_of_scheme(scheme_of(pipeline.sink.table_uri)), f"{here}.sink.table_uri"
        if letters := pipeline.error_handling.advanced.dlq_path:
            yield extra_of_scheme(scheme_of(letters)), f"{here}.error_handling.advanced.dlq_path"


def _source_needs(
    config: Config, source: AnySource, here: str
) -> Iterator[tuple[Extra | None, str]]:
    if source.kind == "files":
        yield extra_of_scheme(scheme_of(source.source_uri)), f"{here}.source_uri"
        yield extra_of_format(source.file_format.type), f"{here}.format"
        return
    where = f"connections.{source.connection}"
    if connection := config.connections.get(source.connection):
        yield extra_of_driver(connection.driver), f"{where}.driver"
        if connection.driver != "http":
            yield extra_of_scheme(scheme_of(connection.uri)), f"{where}.uri"
