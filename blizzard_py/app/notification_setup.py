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
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.store_use import QueueKind, kind_of, subscription_of

_SQS_HOST = re.compile(r"sqs\.([a-z0-9-]+)\.")
_CHECKS = (
    "blizzard doctor CONFIG reads the queue's attributes",
    'blizzard_hints_total{kind="fresh"} grows when a file comes',
    "blizzard_unhinted_files_total stays as it is",
)


def setup_lines(config: Config) -> Iterator[str]:
    """Yield the set-up of each queue: rights, the store's notifications, and what to check."""
    queues: dict[tuple[str, QueueKind], list[tuple[str, SourceSettings]]] = {}
    for (_, name, _, source_name), _, source in config.file_sources():
        if source.notifications is not None:
            uri = source.notifications.uri
            same = queues.setdefault((uri, kind_of(uri, source.uri)), [])
            same.append((f"{name}/{source_name}", source))
    if not queues:
        yield "No source has notifications: see docs/guides/notifications.md."
    for (uri, kind), sources in queues.items():
        yield f"# {redacted(uri)}, for {', '.join(name for name, _source in sources)}"
        settings = [source for _name, source in sources]
        if kind == "webhook":
            yield from _webhook(config, settings)
        elif kind == "sqs":
            yield from _sqs(uri, settings)
        elif kind == "pubsub":
            yield from _pubsub(uri, settings)
        else:
            yield from _azure(uri, settings)
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
    given = (s.notifications for s in sources)
    if any(found is not None and found.advanced.foreign == "delete" for found in given):
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


def _pubsub(uri: str, sources: Sequence[SourceSettings]) -> Iterator[str]:
    subscription = subscription_of(uri)
    project, name = subscription.split("/")[1], subscription.rpartition("/")[2]
    yield ""
    yield "## Topic and subscription; gcloud gives the bucket's agent the right to publish"
    yield f"gcloud pubsub topics create TOPIC --project={project}"
    for bucket, prefix in sorted(place_of(source.uri) for source in sources):
        only = f" --object-prefix={prefix}/" if prefix else ""
        yield (
            f"gcloud storage buckets notifications create gs://{bucket} --topic=TOPIC"
            f" --event-types=OBJECT_FINALIZE{only}"
        )
    yield f"gcloud pubsub subscriptions create {name} --topic=TOPIC --project={project}"
    yield ""
    yield "## Rights of Blizzard"
    yield (
        f"gcloud pubsub subscriptions add-iam-policy-binding {name} --project={project}"
        " --role=roles/pubsub.subscriber --member=serviceAccount:BLIZZARD"
    )


def _azure(uri: str, sources: Sequence[SourceSettings]) -> Iterator[str]:
    parts = urlsplit(uri)
    account, name = (parts.hostname or "").partition(".")[0], parts.path.rpartition("/")[2]
    yield ""
    yield "## Queue, and a subscription of Event Grid for each source"
    yield f"az storage queue create --name {name} --account-name {account}"
    for container, prefix in sorted(place_of(source.uri) for source in sources):
        begins = f"/blobServices/default/containers/{container}/blobs/{prefix}"
        yield (
            f"az eventgrid event-subscription create --name {name} --source-resource-id ACCOUNT_ID"
            " --endpoint-type storagequeue"
            f" --endpoint ACCOUNT_ID/queueservices/default/queues/{name}"
            " --included-event-types Microsoft.Storage.BlobCreated Microsoft.Storage.BlobRenamed"
            f" --subject-begins-with {begins}/".replace("//", "/")
        )
    yield ""
    yield "## Rights of Blizzard on the queue, unless it has a key or a SAS"
    yield "Storage Queue Data Message Processor; to count messages Storage Queue Data Reader too"


def _webhook(config: Config, sources: Sequence[SourceSettings]) -> Iterator[str]:
    address = config.metrics.address if config.metrics is not None else "HOST:PORT"
    yield ""
    yield "## Request of the sender; S3, MinIO, EventBridge and Event Grid bodies are read as well"
    example = json.dumps({"paths": [f"{sources[0].uri}/NAME"]})
    yield f"curl -H 'Authorization: Bearer TOKEN' -d '{example}' http://{address}/notify"


def _document(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]}, indent=2)
