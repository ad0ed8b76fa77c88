"""Values that cannot stand in a request cost their units alone, in each command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import FAILING
from blizzard_py.__main__ import main
from tests.support.api_server import ReceivedRequest, api_server, reply
from tests.support.direct_engine import DirectEngine
from tests.support.unit_shop import UnitShop, api_shop

# In a path; the long one is refused by what sends it.
STEPS, LONG = [".", ".."], "x" * 100_000
FINE = ["/", "a/b", "c\x01\x7f", "é😀", "?#", "%2e", "..;", "a"]


def run_command(shop: UnitShop, *words: str) -> Any:
    return CliRunner().invoke(main, [words[0], str(shop.path()), *words[1:]])


@pytest.mark.promise("G-156")
def test_a_value_that_cannot_be_sent_costs_itself_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    monkeypatch.setattr("blizzard_py.state.retries.RETRY_SECS", (0.1, 900.0))
    values = {"name": "k", "list": [*STEPS, *FINE, LONG]}
    ends = {"a": "{from}", "z": "{to}"}
    with api_server() as api:

        def answer(asked: ReceivedRequest) -> Any:
            return reply({"items": [{"text": asked.path}]})

        api.answer = answer
        range_ = {"from": "2020-01-01", "to": "2020-02-01"}
        shop = api_shop(tmp_path, api.url, ends, range=range_, values=values, partition="none")
        shop.source["request"]["path"] = "/x/{unit.k}"
        found = run_command(shop, "plan", "--json", "--offline")
        assert found.exit_code == 0, found.output
        document = json.loads(found.stdout)["pipelines"]["p"]["sources"]["answers"]
        errors = [unit["unit"]["k"] for unit in document["units"] if "error" in unit]
        assert errors == STEPS
        assert len(document["warnings"]) == 2
        assert run_command(shop, "validate").exit_code == 0
        done = run_command(shop, "run", "--once")
        assert done.exit_code == FAILING, done.output[-500:]
        assert len(shop.texts()) == len(FINE)
        # It is done again when their pauses are over; nothing else fails meanwhile.
        assert run_command(shop, "run", "--once").exit_code == FAILING
        shop.units["values"]["list"] = FINE
        assert run_command(shop, "run", "--once").exit_code == 0
        assert len(shop.texts()) == len(FINE)


@pytest.mark.parametrize("path", ["/{unit.a}{unit.b}/x", "/x/{unit.a}{unit.b}"])
def test_values_that_are_a_step_up_together_are_refused(tmp_path: Path, path: str) -> None:
    values = {"list": [{"a": ".", "b": "."}, {"a": ".", "b": "json"}]}
    shop = api_shop(tmp_path, "http://127.0.0.1:9", {"a": "{from}", "z": "{to}"}, values=values)
    shop.units["range"] = {"from": "2020-01-01", "to": "2020-02-01"}
    shop.source["request"]["path"] = path
    document = json.loads(run_command(shop, "plan", "--json", "--offline").stdout)
    first, second = document["pipelines"]["p"]["sources"]["answers"]["units"]
    assert "'..' cannot be a part of a path" in first["error"]
    assert second["request"]["url"].endswith(path.replace("{unit.a}{unit.b}", ".json"))
