"""Settings of notifications: what they say, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.redact import redacted
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import NotificationSettings, kind_of
from tests.support.flat_settings import settings_of
from tests.support.settings_documents import changed, is_reported, load, problems, with_changes

SQS = "https://sqs.eu-central-1.amazonaws.com/123456789012/raw"
TOKEN = "sesame-sesame-sesame"


def source(**more: Any) -> SourceSettings:
    notifications = {"uri": SQS, **more.pop("notifications", {})}
    return settings_of(SourceSettings, source_uri="s3://raw", notifications=notifications, **more)


def test_complete_scans_are_seldom_by_default() -> None:
    assert source().complete_interval == 3600
    assert source(use_watermark=False).complete_interval == 86_400
    assert source(full_scan_interval="2h").complete_interval == 7200
    assert source(poll_interval="3h").complete_interval == 3 * 3600
    assert SourceSettings(source_uri="s3://raw").complete_interval is None


PUBSUB = "pubsub://projects/p/subscriptions/s"
AZURE = "https://account.queue.core.windows.net/raw"


@pytest.mark.parametrize(
    ("uri", "store", "kind"),
    [
        (SQS, "s3://raw", "sqs"),
        ("https://eu-west-1.queue.amazonaws.com/1/raw", "s3://raw", "sqs"),
        ("http://127.0.0.1:4566/1/raw", "s3://raw", "sqs"),
        (PUBSUB, "gs://raw", "pubsub"),
        (AZURE, "az://raw", "azure"),
        ("http://127.0.0.1:10001/account/raw", "abfss://raw@account.dfs.x", "azure"),
        ("webhook:", "/data", "webhook"),
    ],
)
def test_uri_tells_the_kind(uri: str, store: str, kind: str) -> None:
    assert kind_of(uri, store) == kind


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"uri": "sqs://raw"}, "must be https://sqs.REGION"),
        ({"uri": "pubsub://projects/p/topics/t"}, "must be https://sqs.REGION"),
        ({"uri": f"{AZURE}?sv=1&sig=abc"}, "must not carry credentials"),
        ({"uri": "https://sqs.eu-central-1.amazonaws.com/"}, "must be https://sqs.REGION"),
        ({"uri": f"{SQS}?sig=abc"}, "must not carry credentials"),
        ({"uri": "https://user:pw@host/1/raw"}, "must not carry credentials"),
        ({"uri": "webhook:"}, "webhook: needs token"),
        ({"uri": "webhook:", "token": "short"}, "at least 16"),
        ({"uri": SQS, "token": TOKEN}, "token is for webhook:"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        NotificationSettings(**settings)
    assert "sig=abc" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_list_cost": "5 USD/month"}, "not both"),
        ({"use_watermark": False, "units": {}}, "is not for units"),
    ],
)
def test_other_schedules_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        source(**settings)


def document(uri: str, source_uri: str, **more: Any) -> dict[str, Any]:
    notifications = {"uri": uri, **more}
    return changed(sources__main={"source_uri": source_uri, "notifications": notifications})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (document(f"{SQS}.fifo", "s3://raw"), "is a FIFO queue"),
        (document(SQS, "gs://raw"), "is a queue for stores of s3"),
        (document(SQS, "/data/raw"), "is a queue for stores of s3"),
        (document(PUBSUB, "s3://raw"), "is a queue for stores of gcs"),
        (document(AZURE, "s3://raw"), "is a queue for stores of abfs"),
        (document("webhook:", "/data/raw", token=TOKEN), "needs metrics.address"),
    ],
)
def test_queue_must_fit_the_source(tmp_path: Path, found: dict[str, Any], said: str) -> None:
    assert is_reported(problems(tmp_path, found), said)


def test_sources_of_a_queue_agree_on_foreign_messages(tmp_path: Path) -> None:
    other = {
        "source_uri": "s3://raw/b",
        "notifications": {"uri": SQS, "advanced": {"foreign": "delete"}},
    }
    found = with_changes(document(SQS, "s3://raw/a"), {"sources.other": other})
    assert is_reported(problems(tmp_path, found), "give both the same")


def test_token_is_masked_in_every_text(tmp_path: Path) -> None:
    found = document("webhook:", "/data/raw", token=TOKEN)
    config = load(tmp_path, {**found, "metrics": {"address": "127.0.0.1:9090"}})
    assert TOKEN not in redacted(f"the header was Bearer {TOKEN}")
    assert TOKEN not in repr(config)


def test_spellings_of_a_queue_are_one_queue() -> None:
    found = "https://sqs.eu-central-1.amazonaws.com/1/Raw"
    for uri in (found, "HTTPS://SQS.eu-central-1.amazonaws.com:443/1/Raw"):
        assert NotificationSettings(uri=uri).uri == found
