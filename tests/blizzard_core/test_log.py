"""Logs: JSON lines off a terminal, secrets masked wherever they hide."""

from __future__ import annotations

import io
import json
import logging

import pytest

from blizzard_core.log import configure, get_logger


def logged(level: str, **facts: object) -> list[dict[str, object]]:
    stream = io.StringIO()
    configure(level, stream)
    get_logger(pipeline="p").info("fact", **facts)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_one_json_line_per_event_with_what_is_bound() -> None:
    [line] = logged("info", files=3, path="ü")
    assert (line["event"], line["level"], line["pipeline"]) == ("fact", "info", "p")
    assert (line["files"], line["path"]) == (3, "ü")
    assert str(line["timestamp"]).endswith("Z")


def test_levels_below_the_chosen_one_are_silent() -> None:
    assert logged("warning", files=3) == []


@pytest.mark.promise("G-186")
@pytest.mark.parametrize(
    "facts",
    [
        {"AWS_SECRET_ACCESS_KEY": "geheim"},
        {"storage_options": {"AWS_SESSION_TOKEN": "geheim"}},
        {"nested": [{"password": "geheim"}]},
        {"error": "s3://user:geheim@host/path: timed out"},
        {"account_key": "geheim"},
    ],
)
def test_secrets_never_reach_a_log(facts: dict[str, object]) -> None:
    [line] = logged("info", **facts)
    assert "geheim" not in json.dumps(line)


def test_control_characters_stay_escaped() -> None:
    stream = io.StringIO()
    configure("info", stream)
    get_logger().info("fact", path="a\nb\x1b[31m")
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()


def test_the_directory_that_one_stands_in_is_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PWD", "OLDPWD"):
        monkeypatch.setenv(name, f"/srv/{name.lower()}/project")
    monkeypatch.setenv("MYSQL_PWD", "correct-horse")
    [line] = logged("info", a="/srv/pwd/project/raw: no such directory", b="it was correct-horse")
    assert line["a"] == "/srv/pwd/project/raw: no such directory"
    assert line["b"] == "it was ***"


def test_a_library_warning_has_its_error_and_no_trace() -> None:
    stream = io.StringIO()
    configure("info", stream)
    told = FileNotFoundError(2, "No such file or directory", "/run/token?sig=geheimgeheim")
    logging.getLogger("botocore.credentials").warning("Refreshing failed", exc_info=told)
    logging.getLogger("asyncio").error("Exception in callback", exc_info=told)
    warned, failed = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (warned["event"], warned["message"]) == ("library", "Refreshing failed")
    assert warned["error"].startswith("FileNotFoundError: [Errno 2] No such file")
    assert "exception" not in warned
    assert "FileNotFoundError" in failed["exception"]
    assert "geheim" not in stream.getvalue()
