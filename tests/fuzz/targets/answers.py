"""Answers of an API: each record is cut out of the answer byte for byte."""

from __future__ import annotations

import json
from collections.abc import Iterator

from blizzard_core.errors import SourceError
from blizzard_py.connections.http.answer_text import AnswerText
from tests.fuzz.mutate import json_document
from tests.fuzz.target import Target, hold


def answers(data: bytes) -> None:
    """Cut the answer into as many lines as records, each the same value, or refuse it."""
    try:
        answer = AnswerText(data, "GET https://api.example/x")
        for path in ("next", "page.next"):
            answer.value(path)
            answer.missing(path)
        records = answer.records("data.items" if b"items" in data else "")
        lines = b"".join(answer.lines(records)).split(b"\n")[:-1]
    except SourceError as error:
        hold("a message is bounded", len(str(error)) < 20_000, len(str(error)))
        return
    hold("a record is a line", len(lines) == len(records), lines)
    try:
        document = json.loads(data.removeprefix(b"\xef\xbb\xbf"))
        expected = document["data"]["items"] if b"items" in data else document
        sent = [json.loads(line) for line in lines]
    except (ValueError, RecursionError):
        return  # Python refuses numbers and depths that the answer's reader does not look at
    hold("a record is what was sent", str(sent) == str(expected), (sent, expected))


def _seeds() -> Iterator[bytes]:
    yield b'{"data":{"items":[{"a":1,"b":"x\\n"},\n{"a":[1.5,null]}]},"next":"c","page":{"next":7}}'
    yield b'\xef\xbb\xbf[{"a":NaN},{"b":"\\ud800"},\r\n {"c":{}}]'
    yield b'{"data":{"items":[]},"next":null}'


TARGETS = (Target("answers", answers, _seeds, json_document),)
