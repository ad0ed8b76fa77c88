"""Intervals and prices of a budget of LIST requests, for ``plan`` and ``status``. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from blizzard_core.settings.base import MINUTE
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import LONGEST_SECS, cost_of, currency_of, least_budget
from blizzard_core.watermark.progress import Progress, gaps
from blizzard_py.sources.files.late_file_sweep import interval_of, sweeps
from blizzard_py.sources.files.scan_pacing import limits_of
from blizzard_py.sources.files.scan_schedule import (
    BESIDE_SHARE,
    HOT_SECS,
    HOUR_SECS,
    Intervals,
    ScanLimits,
    hot_cover,
    hot_partitions,
    intervals,
)
from blizzard_py.state.source_state import SourceState

# Names in a page of a listing.
_PAGE = 1000
# Other budgets whose intervals are shown, as multiples of the given one.
_OTHERS = (0.2, 4.0)


def budget_document(
    source: SourceSettings, state: SourceState, progress: Progress, now: float
) -> dict[str, Any] | None:
    """Return the schedule of a source's scans and its price; None if each poll scans everything.

    What scans found lately is known as far as names in their grace period tell.
    """
    limits = limits_of(source)
    if limits is None:
        return None
    seen = {p: max(known.done.values()) for p, known in progress.partitions.items() if known.done}
    found = {p: at for p, at in seen.items() if now - at < HOT_SECS}
    hot = hot_partitions(limits, progress, found) if progress.depth else {}
    ranges = limits.lists(gaps(progress))
    count = limits.lists(hot_cover(limits, progress, found).ranges)
    every = intervals(limits, ranges, count)
    polls = HOUR_SECS * ranges / MINUTE
    price, budget = source.advanced.list_price, limits.budget
    return {
        "lists_per_hour": budget,
        "amount": None if budget is None else cost_of(budget, price),
        "currency": (source.max_list_cost and currency_of(source.max_list_cost)) or None,
        "sweep_lists_per_hour": _sweep_lists(source, state) * HOUR_SECS / interval_of(source),
        "ranges": ranges,
        "hot_ranges": count,
        "hot": [
            {"partition": partition, "found_secs": None if at is None else max(0.0, now - at)}
            for partition, at in sorted(hot.items(), reverse=True)
        ],
        "hot_secs": every.hot,
        "all_secs": every.complete,
        "other_budgets": [
            _other(limits, budget * times, price, ranges, count)
            for times in _OTHERS
            if budget is not None
        ],
        "polls": {
            "secs": MINUTE,
            "lists_per_hour": polls,
            "amount": cost_of(polls, price),
        },
    }


def _other(
    limits: ScanLimits, budget: float, price: float, ranges: int, hot: int
) -> dict[str, Any]:
    every = intervals(replace(limits, budget=budget), ranges, hot)
    return {
        "amount": cost_of(budget, price),
        "hot_secs": every.hot,
        "all_secs": every.complete,
    }


def _sweep_lists(source: SourceSettings, state: SourceState) -> float:
    """Return the LISTs of a sweep, as if all files that were ingested were still there."""
    return state.summary.totals.files / _PAGE if sweeps(source) else 0.0


def budget_notes(
    source: SourceSettings, state: SourceState, progress: Progress, now: float
) -> Iterator[str]:
    """Yield the schedule of a source's scans, and what its budget does not pay in time."""
    found = budget_document(source, state, progress, now)
    if found is None:
        return
    yield f"scans {_described(found)}"
    budget = found["lists_per_hour"]
    if budget is None:
        return
    least = least_budget(found["ranges"], source.advanced.full_scan_interval)
    if source.advanced.full_scan_interval is None and found["all_secs"] > LONGEST_SECS:
        yield (
            f"the LIST budget pays a scan of all {found['ranges']:,} ranges in"
            f" {span_text(found['all_secs'])} only; {least:,} an hour would pay it in six hours"
        )
    elif budget < least:
        yield (
            f"a scan of all {found['ranges']:,} ranges may take as many LISTs, and its hour may"
            f" exceed the budget; with {least:,} an hour it would not"
        )
    lists = _sweep_lists(source, state)
    secs = HOUR_SECS * lists / (budget * BESIDE_SHARE)
    if secs > interval_of(source):
        yield (
            f"a sweep for late files takes about {lists:,.0f} LISTs, with half of the budget"
            f" {span_text(secs)}: longer than late_sweep_interval"
        )


def _described(found: dict[str, Any]) -> str:
    every = Intervals(found["hot_secs"], found["all_secs"])
    if every.hot is None:
        return f"all {found['ranges']:,} ranges every {span_text(every.complete)}"
    return (
        f"{found['hot_ranges']:,} hot of {found['ranges']:,} ranges every {span_text(every.hot)},"
        f" all every {span_text(every.complete)}"
    )


def budget_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the lines about a document of `budget_document`: the first is its headline."""
    budget, currency = found["lists_per_hour"], found["currency"] or ""
    if budget is None:
        yield f"scans {_described(found)}"
    else:
        sweep = found["sweep_lists_per_hour"]
        yield (
            f"{_money(found['amount'], currency)}/month = {budget:,.0f} LISTs an hour,"
            f" {sweep:,.0f} of them the sweep's"
        )
    names = [_hot_text(each) for each in found["hot"]]
    if names:
        yield f"hot: {', '.join(names[:5])}"
    if budget is None:
        return
    yield f"{_described(found)}: {_waits(found)}"
    others = [
        f"{_money(each['amount'], currency)}: {_pair(each['hot_secs'], each['all_secs'])}"
        for each in found["other_budgets"]
    ]
    polls = found["polls"]
    others.append(
        f"polls of everything each {span_text(polls['secs'])}: {_money(polls['amount'], currency)}"
    )
    yield " · ".join(others)


def _hot_text(each: dict[str, Any]) -> str:
    secs = each["found_secs"]
    return f"{each['partition']} ({'newest' if secs is None else f'found {span_text(secs)} ago'})"


def _waits(found: dict[str, Any]) -> str:
    hot, every = found["hot_secs"], found["all_secs"]
    usual = every if hot is None else hot
    most = f"{span_text(usual)} at most"
    elsewhere = "" if hot is None else f" there and {span_text(every)} elsewhere"
    return f"a file waits {span_text(usual / 2)} on average, {most}{elsewhere}"


def _pair(hot: float | None, every: float) -> str:
    return span_text(every) if hot is None else f"{span_text(hot)} / {span_text(every)}"


def _money(amount: float, currency: str) -> str:
    return f"{amount:,.2f} {currency}".rstrip()


def span_text(secs: float) -> str:
    """Return seconds for people, with two digits: ``7.6 s``, ``3.6 min``, ``1.4 h``."""
    for limit, unit, length in ((100, "s", 1.0), (100 * 60, "min", 60.0)):
        if secs < limit:
            return f"{secs / length:.2g} {unit}"
    return f"{secs / HOUR_SECS:.3g} h"
