"""The objects that a notification names, in every form in which stores send it. Pure.

==========================  ==================================================================
S3, MinIO                   ``Records``, directly or in an envelope of SNS; keys are quoted
EventBridge                 ``detail``; its key is not quoted
Google Cloud Storage        ``attributes`` of a Pub/Sub message, directly or pushed in ``message``
Azure                       Event Grid's or CloudEvents' schema, in base64 in a storage queue
anything else               ``{"paths": ["s3://bucket/key", …]}``
==========================  ==================================================================

The content is foreign. Whatever is none of these forms raises `UnreadableMessage`, and nothing
else.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from blizzard_core.limits import (
    MESSAGE_BYTES,
    MESSAGE_ENVELOPES,
    MESSAGE_KEY_CHARACTERS,
    MESSAGE_OBJECTS,
)
from blizzard_core.storage.opening import azure_root, normalize_uri, problems_of, scheme_of

# In these the object is being written: another event follows when it is whole.
_UNFINISHED = frozenset({"CreateFile", "SftpCreate"})
_AZURE_NEW = frozenset({"Microsoft.Storage.BlobCreated", "Microsoft.Storage.BlobRenamed"})
_AZURE_SUBJECT = re.compile(r"/blobServices/default/containers/([^/]+)(?:/blobs/(.+))?", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff\0]")


class UnreadableMessage(Exception):
    """A message is no notification."""


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object of a message.

    ``bucket`` is empty for a local path. Without ``is_new`` the message is about something else:
    a removal, an object that is still being written, or (with an empty key) a test of the bucket.
    """

    bucket: str
    key: str
    is_new: bool = True


def objects_of(body: bytes) -> tuple[ObjectReference, ...]:
    """Return the objects that a message names. Raises `UnreadableMessage`."""
    if len(body) > MESSAGE_BYTES:
        raise UnreadableMessage(f"has more than {MESSAGE_BYTES:,} bytes")
    try:
        found: list[ObjectReference] = []
        for each in _objects(_decoded(body), MESSAGE_ENVELOPES):
            if len(found) >= MESSAGE_OBJECTS:
                raise UnreadableMessage(f"names more than {MESSAGE_OBJECTS:,} objects")
            found.append(each)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise UnreadableMessage(f"is no notification ({type(error).__name__})") from None
    return tuple(found)


def _decoded(body: bytes | str) -> Any:
    """Return the JSON of a text, which may be in base64."""
    text = body.decode() if isinstance(body, bytes) else body
    if text.lstrip()[:1] not in {"{", "["}:
        try:
            text = base64.b64decode(text, validate=True).decode()
        except binascii.Error:
            raise ValueError("neither JSON nor base64") from None
    return json.loads(text)


def _objects(data: Any, envelopes: int) -> Iterator[ObjectReference]:
    if isinstance(data, list):  # Event Grid sends its events so
        for event in data:
            yield from _objects_in(event, envelopes)
        return
    yield from _objects_in(data, envelopes)


def _objects_in(data: Mapping[str, Any], envelopes: int) -> Iterator[ObjectReference]:
    for key, read in _FORMS.items():
        if key in data:
            yield from read(data)
            return
    for key in ("Message", "message"):
        if key in data and data.get("Type", "Notification") == "Notification":
            if envelopes <= 0:
                raise ValueError("too many envelopes")
            inner = data[key]
            inner = _decoded(inner) if isinstance(inner, str) else inner
            yield from _objects(inner, envelopes - 1)
            return
    raise KeyError("no known form")


def _of_s3(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    for record in data["Records"]:
        name = record["eventName"].removeprefix("s3:")
        stored = record["s3"]
        key = unquote_plus(stored["object"]["key"], errors="strict")
        yield _reference(stored["bucket"]["name"], key, is_new=name.startswith("ObjectCreated:"))


def _of_s3_test(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    if data["Event"] != "s3:TestEvent":
        raise ValueError("another event")
    yield ObjectReference(_name(data["Bucket"]), "", is_new=False)


def _of_event_bridge(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    found = data["detail"]
    is_new = data["source"] == "aws.s3" and data["detail-type"] == "Object Created"
    yield _reference(found["bucket"]["name"], found["object"]["key"], is_new=is_new)


def _of_gcs(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    found = data["attributes"]
    is_new = found["eventType"] == "OBJECT_FINALIZE"
    yield _reference(found["bucketId"], found["objectId"], is_new=is_new)


def _of_azure(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    kind = data["eventType"] if "eventType" in data else data["type"]
    found = _AZURE_SUBJECT.fullmatch(data["subject"])
    if found is None or not kind.startswith("Microsoft.Storage."):
        raise ValueError("another event")
    is_new = kind in _AZURE_NEW and data["data"].get("api") not in _UNFINISHED
    if found[2] is None:
        yield ObjectReference(_name(found[1]), "", is_new=False)
    else:
        yield _reference(found[1], found[2], is_new=is_new)


def _of_paths(data: Mapping[str, Any]) -> Iterator[ObjectReference]:
    for uri in data["paths"]:
        if problems_of(uri, {}):
            raise ValueError("no URI")
        yield _reference(*place_of(uri), is_new=True)


_FORMS: dict[str, Callable[[Mapping[str, Any]], Iterator[ObjectReference]]] = {
    "Records": _of_s3,
    "detail": _of_event_bridge,
    "attributes": _of_gcs,
    "subject": _of_azure,
    "paths": _of_paths,
    "Event": _of_s3_test,
}


def _reference(bucket: str, key: str, *, is_new: bool) -> ObjectReference:
    if len(_name(key)) > MESSAGE_KEY_CHARACTERS:
        raise ValueError("a long key")
    return ObjectReference(bucket and _name(bucket), key, is_new)


def _name(text: str) -> str:
    if not text or _SURROGATE.search(text):
        raise ValueError("no name")
    return text


def place_of(uri: str) -> tuple[str, str]:
    """Return bucket and key of a valid URI; of a local path no bucket."""
    found = normalize_uri(uri)
    if scheme_of(found) in {"", "file"}:
        return "", found
    bucket, _, key = azure_root(found.partition("://")[2]).partition("/")
    return bucket, key


def path_below(place: tuple[str, str], found: ObjectReference) -> str | None:
    """Return the object's path below a source's place; None if it lies elsewhere."""
    bucket, prefix = place
    if found.bucket != bucket:
        return None
    if not prefix:
        return found.key
    begin = prefix if prefix.endswith("/") else f"{prefix}/"
    return found.key[len(begin) :] if found.key.startswith(begin) else None
