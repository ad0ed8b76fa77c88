"""Notifications: whatever a message has in it, it names objects or is unreadable."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

from blizzard_core.limits import MESSAGE_KEY_CHARACTERS, MESSAGE_OBJECTS
from blizzard_core.notifications.messages import UnreadableMessage, objects_of
from tests.fuzz.mutate import json_document
from tests.fuzz.target import Target, hold

KEY = "events/date=2026-11-24/a b+ü.gz"
QUOTED = "events/date%3D2026-11-24/a+b%2B%C3%BC.gz"
_SUBJECT = f"/blobServices/default/containers/raw/blobs/{KEY}"


def s3(key: str, name: str = "ObjectCreated:Put") -> dict[str, Any]:
    """Return a message of S3 about an object of the bucket ``raw``."""
    stored = {"bucket": {"name": "raw"}, "object": {"key": key, "size": 7}}
    return {"Records": [{"eventSource": "aws:s3", "eventName": name, "s3": stored}]}


_GCS = {
    "attributes": {"eventType": "OBJECT_FINALIZE", "bucketId": "raw", "objectId": KEY},
    "data": "e30=",
}
# One object, as each sender names it.
FORMS: dict[str, Any] = {
    "s3": s3(QUOTED),
    "minio": {
        "EventName": "s3:ObjectCreated:Put",
        "Key": f"raw/{KEY}",
        **s3(QUOTED, "s3:ObjectCreated:Put"),
    },
    "sns": {"Type": "Notification", "TopicArn": "arn:x", "Message": json.dumps(s3(QUOTED))},
    "eventbridge": {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "detail": {"bucket": {"name": "raw"}, "object": {"key": KEY}},
    },
    "pubsub": _GCS,
    "pubsub push": {"message": _GCS, "subscription": "projects/p/subscriptions/s"},
    "event grid": {
        "eventType": "Microsoft.Storage.BlobCreated",
        "subject": _SUBJECT,
        "data": {"api": "PutBlob"},
    },
    "event grid list": [
        {
            "eventType": "Microsoft.Storage.BlobRenamed",
            "subject": _SUBJECT,
            "data": {"api": "RenameFile"},
        }
    ],
    "cloudevents": {
        "type": "Microsoft.Storage.BlobCreated",
        "specversion": "1.0",
        "subject": _SUBJECT,
        "data": {"api": "FlushWithClose"},
    },
    "paths": {"paths": [f"s3://raw/{KEY}"]},
}


def notifications(data: bytes) -> None:
    """Read a message: bounded objects with names, or `UnreadableMessage`."""
    try:
        found = objects_of(data)
    except UnreadableMessage as error:
        hold("a reason is short", len(str(error)) < 200, str(error))
        return
    hold("objects are bounded", len(found) <= MESSAGE_OBJECTS, len(found))
    for each in found:
        hold("a key is bounded", len(each.key) <= MESSAGE_KEY_CHARACTERS, len(each.key))
        hold("what is new has a key", bool(each.key) or not each.is_new, each)
        each.key.encode()


def _seeds() -> Iterator[bytes]:
    for form in FORMS.values():
        yield json.dumps(form).encode()
    yield base64.b64encode(json.dumps(FORMS["cloudevents"]).encode())
    yield b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"raw"}'


TARGETS = (Target("notifications", notifications, _seeds, json_document),)
