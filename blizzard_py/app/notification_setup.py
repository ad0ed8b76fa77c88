"""The set-up of notifications for operators, from the configuration. Asks no service."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from blizzard_core.notifications.messages import place_of
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.queue_uri import QueueKind, kind_of
from blizzard_core.settings.sources import SourceSettings

_SQS_HOST = re.compile(r"sqs\.([a-z0-9-]+)\.")
_CHECKS = (
    "blizzard doctor CONFIG reads the queue's attributes",
    'blizzard_hints_total{kind="fresh"} grows when a file comes',
    "blizzard_unhinted_files_total stays as it is",
)


def setup_lines(config: Config) -> Iterator[str]:
    """Yield the set-up of each queue: rights, the store's notifications, and what to check."""
    queues: dict[tuple[str, QueueKind], list[tuple[str, SourceSettings]]] = {}
    for name, pipeline in config.pipelines.items():
        for source_name, source in pipeline.file_sources.items():
            if source.notifications is not None:
                uri = source.notifications.uri
                same = queues.setdefault((uri, kind_of(uri)), [])
                same.append((f"{name}/{source_name}", source))
    if not queues:
        yield "No source has notifications: see docs/guides/notifications.md."
    for (uri, kind), sources in queues.items():
        yield f"# {redacted(uri)}, for {', '.join(name for name, _source in sources)}"
        settings = [source for _name, source in sources]
        if kind == "webhook":
            yield from _webhook(config, settings)
        else:
            yield from _sqs(uri, settings)
        yield ""
        yield "## Check"
        yield from (f"- {check}" for check in _CHECKS)
        yield ""


def _sqs(uri: str, sources: Sequence[SourceSettings]) -> Iterator[str]:
    parts = urlsplit(uri)
    found = _SQS_HOST.search(parts.hostname or "")
    account, _, name = parts.path.strip("/").rpartition("/")
    queue = f"arn:aws:sqs:{found[1] if found else 'REGION'}:{account or 'ACCOUNT'}:{name}"
    buckets = sorted({place_of(source.uri)[0] for source in sources})
    yield ""
    yield "## Policy of the queue: these buckets may send to it"
    yield _document(
        {
            "Effect": "Allow",
            "Principal": {"Service": "s3.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": queue,
            "Condition": {
                "ArnEquals": {"aws:SourceArn": [f"arn:aws:s3:::{bucket}" for bucket in buckets]},
                "StringEquals": {"aws:SourceAccount": account or "ACCOUNT"},
            },
        }
    )
    yield ""
    yield "## Rights of Blizzard; with a key of KMS also kms:Decrypt on it"
    actions = ["sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"]
    if any(s.notifications is not None and s.notifications.foreign == "delete" for s in sources):
        actions.append("sqs:PurgeQueue")
    yield _document({"Effect": "Allow", "Action": actions, "Resource": queue})
    for bucket in buckets:
        yield ""
        yield (
            f"## Notifications of bucket {bucket}, for aws s3api"
            " put-bucket-notification-configuration"
        )
        prefixes = sorted(
            {place_of(source.uri)[1] for source in sources if place_of(source.uri)[0] == bucket}
        )
        yield json.dumps(
            {"QueueConfigurations": [_sent(queue, prefix) for prefix in prefixes]}, indent=2
        )


def _sent(queue: str, prefix: str) -> dict[str, Any]:
    """Return one entry of a bucket's notifications, with the prefix filter of a source."""
    found: dict[str, Any] = {"QueueArn": queue, "Events": ["s3:ObjectCreated:*"]}
    if prefix:
        rules = [{"Name": "prefix", "Value": f"{prefix}/"}]
        found["Filter"] = {"Key": {"FilterRules": rules}}
    return found


def _webhook(config: Config, sources: Sequence[SourceSettings]) -> Iterator[str]:
    address = config.metrics.address if config.metrics is not None else "HOST:PORT"
    yield ""
    yield "## Request of the sender; S3, MinIO, EventBridge and Event Grid bodies are read as well"
    example = json.dumps({"paths": [f"{sources[0].uri}/NAME"]})
    yield f"curl -H 'Authorization: Bearer TOKEN' -d '{example}' http://{address}/notify"


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=2)
