"""Findings about query sources that no single setting shows: placeholders, and work units."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from blizzard_core.errors import UnitError
from blizzard_core.settings.document import Config, PipelineSettings, QuerySettings
from blizzard_core.settings.units import UnitSettings
from blizzard_core.settings.yaml_file import Key, SettingProblem
from blizzard_py.app.queries.kinds import kind_of
from blizzard_py.app.queries.units import (
    bounds_in,
    folds,
    placeholders,
    range_of,
)
from blizzard_py.connections.placeholders import (
    FROM,
    TO,
    names_in,
    unit_placeholder,
)
from blizzard_py.slices.units.ranges import laid_out, problems
from blizzard_py.slices.units.values import check_distinct, unit_list


def query_problems(config: Config) -> Iterator[SettingProblem]:
    """Every finding, in the order of the file."""
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.query_sources.items():
            here: Key = ("pipelines", name, "sources", source_name)
            connection = config.connections.get(source.connection)
            driver = "" if connection is None else connection.driver
            if source.units is not None:
                yield from _of_range((*here, "units"), source.units)
                is_case_sensitive = not folds(source, driver)
                yield from _of_values(
                    (*here, "units"), source.units, is_case_sensitive=is_case_sensitive
                )
                yield from _of_use(here, source, source.units)
                yield from _of_ends(here, pipeline, source, source.units)
            kind = kind_of(source)
            problems_found = kind.placeholder_problems(source, placeholders(source), driver)
            yield from (SettingProblem((*here, *key), problem) for key, problem in problems_found)


def _of_range(here: Key, units: UnitSettings) -> Iterator[SettingProblem]:
    range_ = range_of(units)
    found = problems(range_)
    for problem in found:
        word, _, rest = problem.partition(": ")
        if word in {"from", "to", "zone"}:
            yield SettingProblem((*here, "range", word), rest)
        elif word == "partition":
            yield SettingProblem((*here, "partition"), rest)
        else:
            yield SettingProblem((*here, "partition"), problem)
    if not found:
        try:
            laid_out(range_, dt.datetime.now(dt.UTC))
        except UnitError as error:
            yield SettingProblem((*here, "partition"), "; ".join(error.problems))


def _of_values(
    here: Key, units: UnitSettings, *, is_case_sensitive: bool
) -> Iterator[SettingProblem]:
    """``apart``: the source tells all values apart."""
    values = units.values
    if values is None:
        if units.advanced.min_units:
            yield SettingProblem(
                (*here, "advanced", "min_units"), "counts values; give `values`, or leave it out"
            )
        return
    if values.list_ is None:
        return
    try:
        found = unit_list(values.name, values.list_)
        if not is_case_sensitive:
            check_distinct(found)
    except UnitError as error:
        yield SettingProblem((*here, "values", "list"), "; ".join(error.problems))
        return
    if len(found) < (least := units.advanced.min_units):
        place: Key = (*here, "advanced", "min_units")
        yield SettingProblem(place, f"wants {least} values, and {len(found)} are listed")


def _of_use(here: Key, source: QuerySettings, units: UnitSettings) -> Iterator[SettingProblem]:
    """Yield units that would read the same rows because the request ignores them."""
    used = {name for _, text in kind_of(source).texts(source) for name in names_in(text)}
    bounds = bounds_in(source)
    if bounds and "range" not in units.model_fields_set:
        first = FROM if FROM in bounds else TO
        yield SettingProblem(
            (*here, "units"),
            f"{{{first}}} is used, and there is no range; give `range: {{ from, to }}`",
        )
    if units.cooldown > units.grace and FROM in bounds:
        yield SettingProblem(
            (*here, "units", "cooldown"),
            "is more than grace, and the request uses {from}: rows between a high"
            " watermark and the next beginning would not be read",
        )
    if units.partition != "none" and not bounds:
        yield SettingProblem(
            (*here, "units", "partition"),
            "each partition would read the same rows, because the request does not use"
            " {from} or {to}",
        )
    for field in () if units.values is None else units.values.fields:
        if unit_placeholder(field) not in used:
            yield SettingProblem(
                (*here, "units", "values"),
                "each value would read the same rows, because the request does not use"
                f" {{{unit_placeholder(field)}}}",
            )


def _of_ends(
    here: Key, pipeline: PipelineSettings, source: QuerySettings, units: UnitSettings
) -> Iterator[SettingProblem]:
    """Yield unit ends in a request by which rows would be in two units or in none."""
    ends = kind_of(source).ends(pipeline, source)
    if units.advanced.inclusive and all(end != TO for end, _ in ends):
        place: Key = (*here, "units", "advanced", "inclusive")
        yield SettingProblem(place, "applies to {to}, which the request does not use")
    date_ends = sorted(f"{{{end}:{form}}}" for end, form in ends if form == "date")
    schemes = [units.partition] if isinstance(units.partition, str) else units.partition
    if date_ends and any(scheme.strip().lower() == "hourly" for scheme in schemes):
        yield SettingProblem(
            (*here, "units", "partition"),
            f"is hourly, and {date_ends[0]} says days: all units of a day would ask for the same"
            " rows; use daily, or another format",
        )
    for key, problem in kind_of(source).end_problems(pipeline, source, units):
        yield SettingProblem((*here, *key), problem)
