from __future__ import annotations

import json

import pytest

from blizzard_core.text import json_value


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"NaN",
        b"[-Infinity]",
        b"1e400",
        b"9" * 5000,
        b'"\xff"',
        b"",
        b"{",
    ],
    ids=lambda text: str(text[:12]),
)
def test_invalid_json_raises_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        json_value(text)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":1,"b":[0.1,1E5,-0,1.0],"a":2}',
        b'["\\ud800", "\\udc00\\ud800", "\\ud83d\\ude00"]',
        '["ü\ufeff"]',
        '[1, "ü"]'.encode("utf-16"),
        b"9" * 400,
        b"[" * 500 + b"]" * 500,
    ],
    ids=lambda text: str(text[:12]),
)
def test_both_parsers_make_the_same_of_a_text(text: bytes | str) -> None:
    assert repr(json_value(text)) == repr(json.loads(text))


def test_the_rest_is_what_the_standard_library_makes_of_it() -> None:
    text = '{"a": [1, -0.5, 1e300, true, null, "\\udc80"], "b": 123456789012345678901234567890}'
    assert json_value(text) == {
        "a": [1, -0.5, 1e300, True, None, "\udc80"],
        "b": 123456789012345678901234567890,
    }
