"""Budgets of LIST requests: costs as text, and the least budget that can pay. Pure."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import AfterValidator

# The share of a budget that frequent scans of few ranges get; complete scans get the rest.
HOT_SHARE = 0.7
# A complete scan must be paid in this time, unless the time between them is configured.
LONGEST_SECS = 6 * 3600.0
# Of a month of 30 days.
MONTH_HOURS = 720
_COST = re.compile(
    r"(\d{1,9}(?:\.\d{1,9})?) *(?:([A-Za-z]{3}) */ *month|requests? */ *hour)", re.IGNORECASE
)


def _parts(text: str) -> tuple[float, str]:
    """Return the amount and its currency, "" for requests of an hour. Raises `ValueError`."""
    found = _COST.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise ValueError(
            "must be an amount above 0, a currency and /month, such as 5 USD/month, or requests,"
            " such as 1400 requests/hour"
        )
    return float(found[1]), (found[2] or "").upper()


def _cost(text: str) -> str:
    _parts(text)
    return text


ListCost = Annotated[str, AfterValidator(_cost)]


def currency_of(text: str) -> str:
    """Return the currency of a cost, "" if it is a number of requests."""
    return _parts(text)[1]


def budget_of(text: str, price: float) -> float:
    """Return the requests of an hour that a cost pays; ``price`` is that of 1,000."""
    amount, currency = _parts(text)
    return amount / price * 1000 / MONTH_HOURS if currency else amount


def cost_of(lists_per_hour: float, price: float) -> float:
    """Return the cost of a month; ``price`` is that of 1,000 requests."""
    return lists_per_hour * MONTH_HOURS * price / 1000


def least_budget(ranges: int, interval: float | None) -> int:
    """Return the least budget, as requests of an hour, that pays complete scans of so many ranges.

    ``interval`` is the configured time between them in seconds; then they get the larger share.
    The hour of a complete scan also pays for frequent scans of one range.
    """
    secs, share = (LONGEST_SECS, 1 - HOT_SHARE) if interval is None else (interval, HOT_SHARE)
    needed = 3600 * ranges / (secs * share)
    # A request a range is left over, or half of a small budget; other scans get a part of that.
    beside = HOT_SHARE / 2 if interval is None else 1 / 2
    least = (ranges + 1) / (1 - beside)
    return math.ceil(max(least, min(2 * needed, needed + ranges + 1)))
