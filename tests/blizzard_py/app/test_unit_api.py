"""An API read by work units: requests, failures of one unit, letters, corrections of the past."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import BlizzardError, Unavailable
from blizzard_py.__main__ import main
from blizzard_py.app import inspection
from tests.support.api_server import ReceivedRequest, Reply, api_server, reply
from tests.support.unit_shop import UnitShop


class Surveys:
    """Answers by survey; ``broken`` surveys are refused."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.broken: set[str] = set()

    def answer(self, asked: ReceivedRequest) -> Reply:
        survey = asked.path.split("/")[2].replace("%2F", "/").replace("%25", "%")
        if survey in self.broken:
            return reply({"error": "no such survey"}, 404)
        low, high = (dt.datetime.fromisoformat(asked.params[key]) for key in ("from", "to"))
        found = [
            {key: value for key, value in row.items() if key != "survey"}
            for row in self.rows
            if row["survey"] == survey and low <= dt.datetime.fromisoformat(row["at"]) < high
        ]
        return reply({"items": found})

    def put(self, *rows: tuple[str, str, str]) -> None:
        self.rows += [{"at": f"{at}T12:00:00Z", "survey": s, "text": t} for at, s, t in rows]


def shop_of(folder: Path, url: str, **units: Any) -> UnitShop:
    shop = UnitShop(folder, values={"name": "survey", "list": "s1,a/b%"}, **units)
    shop.document["connections"] = {"api": {"driver": "http", "base_url": url}}
    shop.source.pop("query")
    shop.source.update(
        kind="http",
        connection="api",
        records="items",
        request={
            "path": "/surveys/{unit.survey}/answers",
            "params": {"from": "{from}", "to": "{to}", "day": "{from:date}"},
        },
    )
    shop.document["pipelines"]["p"]["schema"]["fields"] = [
        {"name": "at", "type": "timestamp"},
        {"name": "text", "type": "string"},
    ]
    return shop


@pytest.mark.promise("G-156")
def test_a_unit_that_is_refused_costs_itself_alone(tmp_path: Path) -> None:
    surveys = Surveys()
    surveys.put(("2020-01-05", "s1", "a"), ("2020-02-05", "a/b%", "b"))
    surveys.broken = {"a/b%"}
    with api_server() as api:
        api.answer = surveys.answer
        shop = shop_of(tmp_path, api.url)
        shop.document["pipelines"]["p"]["error_handling"] = {"max_retries": 0}
        shop.run()
        assert shop.texts() == ["a"]
        listed = CliRunner().invoke(main, ["dlq", "list", str(shop.path()), "--json"])
        letters = [json.loads(line) for line in listed.output.splitlines()]
        assert {letter["path"].rpartition("T00:00:00.000Z/")[2] for letter in letters} == {"a/b%"}
        assert "404" in letters[0]["error"]
        units = inspection.status(shop.config())[0]["pipelines"]["p"]["sources"]["answers"]["units"]
        assert units["failing"] == 2
        surveys.broken = set()
        shop.passes(hours=1)
        shop.run()
        assert shop.texts() == ["a", "b"]
        after = CliRunner().invoke(main, ["dlq", "list", str(shop.path()), "--json"])
        assert after.output == ""


def test_plan_tells_the_request_and_asks_nobody(tmp_path: Path) -> None:
    with api_server() as api:
        shop = shop_of(tmp_path, api.url)
        found, errors = inspection.plan(shop.config(), now=shop.now, offline=True)
        assert not errors
        assert not api.asked
    last = found["pipelines"]["p"]["sources"]["answers"]["units"][-1]
    assert last["request"] == {
        "method": "GET",
        "url": f"{api.url}/surveys/a%2Fb%25/answers",
        "params": {
            "from": "2020-02-01T00:00:00.000Z",
            "to": "2020-02-22T09:30:00.000Z",
            "day": "2020-02-01",
        },
        "body": None,
    }


def test_an_api_that_corrects_the_past_costs_a_request_a_slice(tmp_path: Path) -> None:
    surveys = Surveys()
    surveys.put(("2020-02-21", "s1", "old"), ("2020-02-02", "s1", "far"))
    with api_server() as api:
        api.answer = surveys.answer
        shop = shop_of(tmp_path, api.url, grace="3d")
        shop.run()
        surveys.rows[0]["text"] = "new"
        api.asked.clear()
        shop.passes(days=1)
        shop.run()
        assert shop.texts() == ["far", "new"]
        # Two units of February are incomplete, each with two slices; January is out of grace.
        assert len(api.asked) == 4


def test_a_server_that_is_down_leaves_all_as_it_is(tmp_path: Path) -> None:
    surveys = Surveys()
    surveys.put(("2020-01-05", "s1", "a"))
    with api_server() as api:
        api.answer = surveys.answer
        shop = shop_of(tmp_path, api.url, grace="60d")
        shop.run()
        surveys.broken = {"s1", "a/b%"}
        shop.passes(days=1)
        with pytest.raises(Unavailable, match="404"):
            shop.run()
        assert shop.texts() == ["a"]


class Pages:
    """Answers in pages of two; behind the first those of a survey may go wrong."""

    def __init__(self) -> None:
        self.answers = {survey: [f"{survey}{n}" for n in range(5)] for survey in ("s1", "a/b%")}
        self.wrong: Reply | None = None

    def answer(self, asked: ReceivedRequest) -> Reply:
        survey = asked.path.split("/")[2].replace("%2F", "/").replace("%25", "%")
        at = int(asked.params.get("offset", 0))
        if self.wrong is not None and survey == "s1" and at >= 2:
            return self.wrong
        texts = self.answers[survey] if asked.params["day"] == "2020-01-01" else []
        items = [{"at": "2020-01-05T12:00:00Z", "text": text} for text in texts[at : at + 2]]
        return reply({"items": items, "total": len(texts)})


@pytest.mark.promise("G-161")
@pytest.mark.parametrize(
    "wrong",
    [
        reply({"error": "oops"}, 500, Retry_After="0"),
        reply({"error": "slow down"}, 429, Retry_After="0"),
        Reply(b'{"items": [{"at": "2020-01-', headers={"Content-Type": "application/json"}),
        Reply(b"<html>maintenance</html>", headers={"Content-Type": "text/html"}),
        reply({"items": [], "total": 5}),
        reply({"items": []}),
        reply({"answers": []}),
    ],
    ids=["500", "429", "truncated", "html", "short", "no total", "no list"],
)
def test_a_unit_that_fails_half_way_keeps_its_last_reading(tmp_path: Path, wrong: Reply) -> None:
    pages = Pages()
    with api_server() as api:
        api.answer = pages.answer
        shop = shop_of(tmp_path, api.url, grace="60d")
        limits = {"limit_param": "limit", "size": 2, "total": "total"}
        shop.source["pages"] = {"kind": "offset", "param": "offset", **limits}
        shop.run()
        before = shop.texts()
        assert len(before) == 10
        pages.wrong = wrong
        pages.answers = {
            survey: [f"new {t}" for t in told] for survey, told in pages.answers.items()
        }
        for _ in range(2):
            with contextlib.suppress(BlizzardError):
                shop.run()
            assert {t.rpartition(" ")[2] for t in shop.texts()} == set(before)
            assert {t for t in shop.texts() if "s1" in t} == {t for t in before if "s1" in t}
            shop.passes(hours=2)
        assert [t for t in shop.texts() if "a/b%" in t] == [f"new a/b%{n}" for n in range(5)]
        pages.wrong = None
        shop.passes(days=1)
        shop.run()
        assert shop.texts() == sorted(f"new {text}" for text in before)
