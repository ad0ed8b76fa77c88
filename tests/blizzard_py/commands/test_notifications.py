"""``blizzard notifications``, and what `doctor`, `plan` and `validate` say of a queue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from blizzard_core.settings.document import Config
from blizzard_py.__main__ import main as blizzard
from blizzard_py.app.doctor import _queues
from blizzard_py.app.notification_setup import setup_lines

SQS = "https://sqs.eu-central-1.amazonaws.com/123456789012/raw"
TOKEN = "sesame-sesame-sesame"


def document(*sources: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "pipelines": {
            "events": {
                "sources": {f"s{number}": each for number, each in enumerate(sources)},
                "sink": {"table_uri": "/lake/events"},
                "schema": {"fields": [{"name": "a", "type": "string"}]},
            }
        },
        **more,
    }


def sqs(uri: str, **more: Any) -> dict[str, Any]:
    return {"source_uri": uri, "notifications": {"uri": SQS, **more}}


def blocks(config: dict[str, Any]) -> list[Any]:
    text = "\n".join(setup_lines(Config.model_validate(config)))
    return [json.loads(part) for part in text.split("\n## ")[1:] for part in [braced(part)] if part]


def braced(text: str) -> str:
    begin, end = text.find("{\n"), text.rfind("}")
    return text[begin : end + 1] if begin >= 0 else ""


def test_setup_has_policies_of_all_sources_of_a_queue() -> None:
    found = blocks(document(sqs("s3://raw/b"), sqs("s3://raw/a"), sqs("s3://more")))
    policy, rights, more, raw = found
    queue = "arn:aws:sqs:eu-central-1:123456789012:raw"
    (statement,) = policy["Statement"]
    assert statement["Condition"] == {
        "ArnEquals": {"aws:SourceArn": ["arn:aws:s3:::more", "arn:aws:s3:::raw"]},
        "StringEquals": {"aws:SourceAccount": "123456789012"},
    }
    assert rights["Statement"][0]["Resource"] == queue
    assert "sqs:PurgeQueue" not in rights["Statement"][0]["Action"]
    assert "Filter" not in more["QueueConfigurations"][0]
    rules = [q["Filter"]["Key"]["FilterRules"][0]["Value"] for q in raw["QueueConfigurations"]]
    assert rules == ["a/", "b/"]


def test_setup_of_a_queue_of_ours_may_empty_it() -> None:
    rights = blocks(document(sqs("s3://raw", advanced={"foreign": "delete"})))[1]
    assert "sqs:PurgeQueue" in rights["Statement"][0]["Action"]


def test_setup_of_a_webhook_keeps_its_token(tmp_path: Path) -> None:
    source = {"source_uri": "/raw", "notifications": {"uri": "webhook:", "token": TOKEN}}
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(document(source, metrics={"address": "127.0.0.1:9090"})))
    done = CliRunner().invoke(blizzard, ["notifications", str(path)])
    assert done.exit_code == 0
    assert "http://127.0.0.1:9090/notify" in done.output
    assert TOKEN not in done.output


@pytest.mark.parametrize(
    ("uri", "source", "said"),
    [
        (
            "pubsub://projects/p/subscriptions/s",
            "gs://raw/events",
            "gs://raw --topic=TOPIC --event-types=OBJECT_FINALIZE --object-prefix=events/",
        ),
        (
            "https://account.queue.core.windows.net/q",
            "az://raw/events",
            "--subject-begins-with /blobServices/default/containers/raw/blobs/events/",
        ),
        (
            "https://account.queue.core.windows.net/q",
            "az://raw",
            "--subject-begins-with /blobServices/default/containers/raw/blobs/",
        ),
    ],
)
def test_setup_filters_by_the_sources_prefix(uri: str, source: str, said: str) -> None:
    found = document({"source_uri": source, "notifications": {"uri": uri}})
    lines = list(setup_lines(Config.model_validate(found)))
    assert any(line.endswith(said) for line in lines)


def test_setup_without_notifications_says_so(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(document({"source_uri": "/raw"})))
    done = CliRunner().invoke(blizzard, ["notifications", str(path)])
    assert "No source has notifications" in done.output


def test_doctor_asks_each_queue_once() -> None:
    away = {
        "source_uri": "s3://raw",
        "notifications": {"uri": "http://127.0.0.1:9/1/raw"},
        "storage_options": {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"},
    }
    (found,) = _queues(Config.model_validate(document(away, away)), [])
    assert (found.subject, found.result) == ("queue http://127.0.0.1:9/1/raw", "failed")


def test_plan_and_status_say_what_notifications_decide(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.ndjson").write_text('{"a": "1"}\n')
    found = {"uri": "webhook:", "token": TOKEN}
    source = {"source_uri": str(tmp_path / "raw"), "notifications": found}
    config = document(source, metrics={"address": "127.0.0.1:9090"})
    config["pipelines"]["events"]["sink"]["table_uri"] = str(tmp_path / "lake")
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(config))
    for command in ("plan", "status"):
        text = " ".join(CliRunner().invoke(blizzard, [command, str(path)]).output.split())
        assert "scans where messages of webhook: name new files, every 10 s at most" in text, text
        assert "set advanced.min_age" in text
