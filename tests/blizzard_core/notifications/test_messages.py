"""Objects that messages name: every form, and nothing but `UnreadableMessage` for the rest."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from blizzard_core.limits import (
    MESSAGE_BYTES,
    MESSAGE_ENVELOPES,
    MESSAGE_KEY_CHARACTERS,
    MESSAGE_OBJECTS,
)
from blizzard_core.notifications.messages import (
    ObjectReference,
    UnreadableMessage,
    objects_of,
    path_below,
    place_of,
)
from tests.fuzz.targets.notifications import FORMS, KEY, QUOTED, s3


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_names_the_same_object(form: Any) -> None:
    assert objects_of(json.dumps(form).encode()) == (ObjectReference("raw", KEY),)


def test_storage_queue_has_base64() -> None:
    body = base64.b64encode(json.dumps(FORMS["event grid"]).encode())
    assert objects_of(body) == (ObjectReference("raw", KEY),)


def test_several_records_are_several_objects() -> None:
    body = {"Records": [*s3("a.gz")["Records"], *s3("b.gz")["Records"]]}
    assert [each.key for each in objects_of(json.dumps(body).encode())] == ["a.gz", "b.gz"]


@pytest.mark.parametrize(
    "form",
    [
        s3(QUOTED, "ObjectRemoved:Delete"),
        {**FORMS["eventbridge"], "detail-type": "Object Deleted"},
        {"attributes": {**FORMS["pubsub"]["attributes"], "eventType": "OBJECT_DELETE"}},
        {**FORMS["cloudevents"], "data": {"api": "CreateFile"}},
        {**FORMS["event grid"], "eventType": "Microsoft.Storage.BlobDeleted"},
    ],
    ids=["s3", "eventbridge", "pubsub", "azure create", "azure delete"],
)
def test_other_events_name_nothing_new(form: Any) -> None:
    assert objects_of(json.dumps(form).encode()) == (ObjectReference("raw", KEY, is_new=False),)


def test_test_event_names_its_bucket() -> None:
    body = b'{"Service":"Amazon S3","Event":"s3:TestEvent","Bucket":"raw"}'
    assert objects_of(body) == (ObjectReference("raw", "", is_new=False),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"\xff\xfe{}",
        b"{}",
        b"[[]]",
        b'"Records"',
        b'{"Records": 7}',
        b'{"Records": [null]}',
        b"[" * 100_000,
        b'{"Type": "SubscriptionConfirmation", "Message": "{}"}',
        b'{"attributes": {"eventType": "OBJECT_FINALIZE", "bucketId": "raw"}}',
        b'{"paths": ["ftp://x/y"]}',
        b'{"paths": ["s3://raw/\\ud800"]}',
        json.dumps(s3("%ff%fe")).encode(),
        json.dumps(s3("")).encode(),
    ],
)
def test_other_content_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        objects_of(body)


@pytest.mark.parametrize(
    "body",
    [
        b" " * (MESSAGE_BYTES + 1),
        json.dumps({"paths": ["s3://raw/a"] * (MESSAGE_OBJECTS + 1)}).encode(),
        json.dumps(s3("k" * (MESSAGE_KEY_CHARACTERS + 1))).encode(),
    ],
    ids=["bytes", "objects", "key"],
)
def test_content_beyond_limits_is_unreadable(body: bytes) -> None:
    with pytest.raises(UnreadableMessage):
        objects_of(body)


def test_too_many_envelopes_are_unreadable() -> None:
    form: Any = s3(QUOTED)
    for _ in range(MESSAGE_ENVELOPES):
        form = {"Type": "Notification", "Message": json.dumps(form)}
    assert objects_of(json.dumps(form).encode())
    form = {"Type": "Notification", "Message": json.dumps(form)}
    with pytest.raises(UnreadableMessage):
        objects_of(json.dumps(form).encode())


def test_mutations_are_read_or_unreadable() -> None:
    chance = random.Random(40)
    seeds = [json.dumps(form).encode() for form in FORMS.values()]
    for _ in range(20_000):
        data = bytearray(chance.choice(seeds))
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(data))
            data[at : at + chance.randint(0, 6)] = chance.choice(
                (b"", b"null", b"{}", b"[", b'"', bytes([chance.randrange(256)]), b"\\ud800")
            )
        try:
            objects_of(bytes(data))
        except UnreadableMessage:
            continue


@pytest.mark.parametrize(
    ("uri", "bucket", "key", "path"),
    [
        ("s3://raw/events/", "raw", "events/a/b.gz", "a/b.gz"),
        ("s3://raw/events", "raw", "events2/b.gz", None),
        ("s3://raw", "raw", "b.gz", "b.gz"),
        ("s3://raw/events", "other", "events/b.gz", None),
        ("gs://raw/x", "raw", "x/y", "y"),
        ("abfss://raw@account.dfs.core.windows.net/x", "raw", "x/y", "y"),
        ("/data/raw", "", "/data/raw/y", "y"),
        ("/data/raw", "", "/data/rawer/y", None),
    ],
)
def test_key_becomes_a_path_below_its_source(
    uri: str, bucket: str, key: str, path: str | None
) -> None:
    assert path_below(place_of(uri), ObjectReference(bucket, key)) == path
