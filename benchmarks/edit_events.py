"""Edits of an encyclopedia, made up: twenty fields, many of them null, text of any language."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

from blizzard_py.job import FieldSpec

EDIT_FIELDS = (
    FieldSpec("time", "timestamp", nullable=False),
    *(
        FieldSpec(name, "string", nullable=True)
        for name in ("channel", "cityName", "comment", "countryIsoCode", "countryName")
    ),
    *(
        FieldSpec(name, "boolean", nullable=True)
        for name in ("isAnonymous", "isMinor", "isNew", "isRobot", "isUnpatrolled")
    ),
    FieldSpec("metroCode", "int64", nullable=True),
    *(
        FieldSpec(name, "string", nullable=True)
        for name in ("namespace", "page", "regionIsoCode", "regionName", "user")
    ),
    *(FieldSpec(name, "int64", nullable=True) for name in ("delta", "added", "deleted")),
)

_START = datetime(2024, 5, 6, tzinfo=UTC)
_LANGUAGES = ("en", "en", "en", "vi", "de", "fr", "ru", "ja", "uk")
_NAMESPACES = ("Main", "Main", "Main", "Talk", "User", "Wikipedia", "Категорія", "Thể loại")
_WORDS = (
    *("added", "link", "to", "the", "list", "of", "stubs", "(/* History */)", "fixed", "typo"),
    *(
        "references",
        "[[Category:",
        "]]",
        "přidáno",
        "изображение",
        "記事",
        "über",
        "sửa",
        '"quoted"',
    ),
)
_PLACES = (
    ("Praha", "CZ", "Czechia", "PR", "Hlavní město Praha", "null"),
    ("New York", "US", "United States", "NY", "New York", "501"),
    ("Hà Nội", "VN", "Vietnam", "HN", "Hanoi", "null"),
)


def edit(number: int) -> str:
    """Return the event of that number, always the same."""
    draw = random.Random(number).random
    when = (_START + timedelta(milliseconds=41 * number)).isoformat(timespec="milliseconds")
    comment = " ".join(_WORDS[int(draw() * len(_WORDS))] for _ in range(1 + int(draw() * 14)))
    page = f"{_WORDS[int(draw() * 10)]} {int(draw() * 80_000)}"
    added, deleted = int(draw() ** 4 * 4000), int(draw() ** 6 * 2000)
    city, country, named, region, region_named, metro = (*("null",) * 6,)
    if anonymous := draw() < 0.12:
        *place, metro = _PLACES[int(draw() * len(_PLACES))]
        city, country, named, region, region_named = (_text(name) for name in place)
    user = f"192.0.2.{int(draw() * 256)}" if anonymous else f"Editor {int(draw() * 30_000)}"
    return (
        f'{{"time":"{when[:-6]}Z","channel":"#{_LANGUAGES[int(draw() * 9)]}.wikipedia",'
        f'"cityName":{city},"comment":{_text(comment)},"countryIsoCode":{country},'
        f'"countryName":{named},"isAnonymous":{_flag(anonymous)},"isMinor":{_flag(draw() < 0.3)},'
        f'"isNew":{_flag(draw() < 0.1)},"isRobot":{_flag(draw() < 0.4)},'
        f'"isUnpatrolled":{_flag(draw() < 0.1)},"metroCode":{metro},'
        f'"namespace":{_text(_NAMESPACES[int(draw() * 8)])},"page":{_text(page)},'
        f'"regionIsoCode":{region},"regionName":{region_named},"user":{_text(user)},'
        f'"delta":{added - deleted},"added":{added},"deleted":{deleted}}}\n'
    )


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _flag(value: bool) -> str:
    return "true" if value else "false"
