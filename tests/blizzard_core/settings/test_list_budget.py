"""Budgets of LIST requests in the configuration."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.settings.checks import cross_field_problems
from blizzard_core.settings.document import Config
from blizzard_core.settings.sources import SourceSettings
from tests.support.flat_settings import nested


def source(**given: Any) -> SourceSettings:
    return SourceSettings.model_validate(
        nested(SourceSettings, {"source_uri": "s3://raw/events", **given})
    )


def config(source: dict[str, Any], **pipeline: Any) -> Config:
    block = {
        "sources": {"main": {"source_uri": "s3://raw/events", **source}},
        "sink": {"table_uri": "s3://lake/events"},
        "schema": {"fields": [{"name": "at", "type": "timestamp"}]},
        **pipeline,
    }
    return Config.model_validate(nested(Config, {"pipelines": {"events": block}}))


def test_cost_is_a_number_of_requests_an_hour() -> None:
    assert round(source(max_list_cost="5 USD/month").lists_per_hour or 0) == 1389
    cheap = source(max_list_cost="2.50eur / month", list_price=0.01)
    assert round(cheap.lists_per_hour or 0) == 347
    assert source(max_list_cost="1400 requests/hour", list_price=9).lists_per_hour == 1400
    assert source(max_list_cost="1 request / hour").lists_per_hour == 1
    assert source().lists_per_hour is None


def test_poll_interval_is_a_second_with_a_budget_alone() -> None:
    assert source(max_list_cost="1 USD/month").poll_interval == 1
    assert source(max_list_cost="1 USD/month", poll_interval="10s").poll_interval == 10
    assert source(full_scan_interval="1h").poll_interval == 60


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_list_cost": "5"}, "5 USD/month"),
        ({"max_list_cost": "0 USD/month"}, "above 0"),
        ({"max_list_cost": "5 USD/day"}, "/month"),
        ({"max_list_cost": "5 requests/month"}, "1400 requests/hour"),
        ({"max_list_cost": f"{'9' * 400} USD/month"}, "5 USD/month"),
        ({"max_list_cost": "5 USD/month", "list_price": 1e-320}, "list_price"),
        ({"max_list_cost": "1 USD/month", "use_watermark": False}, "use_watermark: true"),
        ({"max_list_cost": "1 USD/month", "poll_interval": "500ms"}, "at least 1s"),
        ({"full_scan_interval": "1m"}, "longer than poll_interval"),
    ],
)
def test_bad_limits_are_refused(given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        source(**given)


def test_budget_that_cannot_pay_names_the_least_that_can() -> None:
    [found] = cross_field_problems(config({"max_list_cost": "0.1 USD/month"}))
    assert found.key[-1] == "max_list_cost"
    assert "0.37 USD/month (102 requests/hour)" in found.text
    assert list(cross_field_problems(config({"max_list_cost": "0.368 USD/month"}))) == []
    [found] = cross_field_problems(config({"max_list_cost": "0.366 USD/month"}))
    assert "64 tracked partitions in six hours and frequent scans in the same hour" in found.text
    assert "the least that does is 0.37 USD/month (102 requests/hour)" in found.text
    [found] = cross_field_problems(config({"max_list_cost": "101 requests/hour"}))
    assert "the least that does is 102 requests/hour, or lower" in found.text
    seldom = {"max_list_cost": "0.473 USD/month", "full_scan_interval": "1d"}
    [found] = cross_field_problems(config(seldom))
    assert "132 requests/hour" in found.text
    fast = {"max_list_cost": "1.8 USD/month", "full_scan_interval": "5m"}
    [found] = cross_field_problems(config(fast))
    assert "in advanced.full_scan_interval" in found.text


def test_query_over_event_time_has_no_limits_for_scans() -> None:
    query = {"column": "at", "delay": "1h", "deduplicate": ["at"]}
    given = config({"full_scan_interval": "1h"}, event_time=query)
    assert "full_scan_interval" in {found.key[-1] for found in cross_field_problems(given)}
