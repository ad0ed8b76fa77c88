"""Cross-field checks of limits for scans: budgets of LIST requests, and seldom complete scans."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import budget_of, cost_of, currency_of, least_budget
from blizzard_core.settings.yaml_file import Key, SettingProblem


def list_budget_problems(config: Config) -> Iterator[SettingProblem]:
    """Yield the problems in the order of the file."""
    for here, pipeline, source in config.file_sources():
        if not source.has_scan_limits:
            continue
        costs = source.max_list_cost is not None
        key: Key = ("max_list_cost",) if costs else ("advanced", "full_scan_interval")
        if pipeline.query is not None:
            yield SettingProblem(
                (*here, *key),
                "is not for a query over event_time: files that wait for a complete scan would"
                " have late rows; leave it out, and poll less often",
            )
        elif source.max_list_cost is not None:
            yield from _of_budget((*here, *key), source, source.max_list_cost)


def _of_budget(where: Key, source: SourceSettings, cost: str) -> Iterator[SettingProblem]:
    price = source.advanced.list_price
    tracked = source.advanced.max_tracked_partitions
    interval = source.advanced.full_scan_interval
    least = least_budget(tracked + 1, interval)
    if budget_of(cost, price) >= least:
        return
    enough, currency = f"{least} requests/hour", currency_of(cost)
    if currency:
        enough = f"{cost_of(least, price):.2f} {currency}/month ({enough})"
    time = "six hours" if interval is None else "advanced.full_scan_interval"
    yield SettingProblem(
        where,
        f"does not pay a complete scan of {tracked} tracked partitions in {time} and frequent scans"
        f" in the same hour; the least that does is {enough}, or lower"
        " advanced.max_tracked_partitions",
    )
