"""JSON documents of a mailbox: canonical bytes, and strict reading of foreign ones. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from blizzard_core.checkpoint.decode import decode_document
from blizzard_core.errors import BlizzardError, StateError
from blizzard_core.limits import REQUEST_BYTES, REQUEST_CHARACTERS
from blizzard_core.text import printable, shortened, written_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

VERSION = 1

Text = Annotated[str, msgspec.Meta(max_length=REQUEST_CHARACTERS)]
T = TypeVar("T")


class RequestInvalid(BlizzardError):
    """A request, or its id, cannot be used; the message says where and what to do.

    Foreign text in it is made short and printable.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(shortened(message)))


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a document that says how to read the rest."""

    v: int
    kind: str = ""
    release: str = ""


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the JSON of a value, the same bytes for equal values."""
    text = json.dumps(
        value,
        ensure_ascii=False,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
        default=dict,
    )
    # Names of local files need not be UTF-8.
    return text.encode("utf-8", "surrogatepass")


def encode_document(document: DataclassInstance) -> bytes:
    """Return the stored bytes of a document, the same for equal ones."""
    known = {each.name: getattr(document, each.name) for each in fields(document)}
    return canonical({"v": VERSION, **known})


def parse(raw: bytes, where: str, remedy: str) -> tuple[Head, dict[str, Any]]:
    """Return the head of a document and all of it but the version. Raises `RequestInvalid`."""
    if len(raw) > REQUEST_BYTES:
        most = f"{REQUEST_BYTES >> 20} MiB"
        raise RequestInvalid(f"{where}: is larger than {most}; {remedy}, with less at once")
    try:
        document = written_value(raw)
    except ValueError as error:
        raise RequestInvalid(f"{where}: is not valid JSON ({error}); {remedy}") from error
    if not isinstance(document, dict):
        raise RequestInvalid(f"{where}: is no JSON object; {remedy}")
    head = decode(Head, document, where, remedy, is_open=True)
    if head.v != VERSION:
        raise unknown(f"{where}: v: {head.v}", head, remedy)
    return head, {key: value for key, value in document.items() if key != "v"}


def decode(kind: type[T], value: Any, where: str, remedy: str, *, is_open: bool = False) -> T:
    """Return what a JSON value describes, as `decode_document` does. Raises `RequestInvalid`."""
    try:
        return decode_document(kind, value, where, remedy, open_=is_open)
    except StateError as error:
        raise RequestInvalid(str(error)) from error


def unknown(what: str, head: Head, remedy: str) -> RequestInvalid:
    """Return the error for what another release wrote."""
    release = repr(head.release) if head.release else "an unknown release"
    return RequestInvalid(
        f"{what} is unknown to this release; {release} wrote it: run that one, or {remedy}"
    )
