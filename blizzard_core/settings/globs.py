"""Patterns of paths, as ``include`` and ``exclude`` have them, and templates of folders. Pure.

``*`` and ``?`` stay within a folder, ``**`` stands for any number of folders (in stores some have
no name) or for everything below one, ``[0-9]`` is one character, ``{a,b}`` and ``{01..12}`` are
alternatives, of which each makes a pattern of its own. ``[*]`` is a star itself. Capitals count, as
in names of objects.

A template (`path_template`) stands for the first folders of a path: ``{name}`` is the value of a
column, the folder ``*`` is any one, and other text stands for itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

# Alternatives of one list of patterns, in all.
MOST_PATTERNS = 1000
# Characters of an alternative, and of all of a pattern: longer ones take minutes to read, and no
# name needs them.
_MOST_CHARACTERS = 10_000
_MOST_CHARACTERS_IN_ALL = 1_000_000
_MOST_BRACES = 100
_ANY_FOLDERS = "**"
_NUMBERS = re.compile(r"(\d{1,9})\.\.(\d{1,9})")


@dataclass(frozen=True)
class Component:
    """One component of a pattern: ``start`` is the text with which it begins.

    ``is_fixed``: it is that text and nothing else.
    """

    text: str
    start: str
    expression: str

    @property
    def is_fixed(self) -> bool:
        """True without a wildcard."""
        return not self.is_any_folders and self.expression == re.escape(self.start)

    @property
    def is_any_folders(self) -> bool:
        """True if it stands for any number of folders."""
        return self.text == _ANY_FOLDERS

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.expression, re.DOTALL)

    def matches(self, name: str) -> bool:
        """Return whether it stands for a name."""
        return self._compiled.fullmatch(name) is not None


@dataclass(frozen=True)
class Glob:
    """A pattern without alternatives."""

    components: tuple[Component, ...]

    @property
    def start(self) -> str:
        """The text with which every path begins that it matches."""
        text = ""
        for number, each in enumerate(self.components):
            if each.is_any_folders:
                return text
            text += each.start
            if not each.is_fixed:
                return text
            if number < len(self.components) - 1:
                text += "/"
        return text

    @property
    def is_fixed(self) -> bool:
        """True if it matches one path only."""
        return all(each.is_fixed for each in self.components)

    @property
    def folder(self) -> Glob | None:
        """The pattern of the folders of which it matches everything, None if it does not."""
        if len(self.components) > 1 and self.components[-1].is_any_folders:
            return Glob(self.components[:-1])
        return None

    @property
    def names_files(self) -> bool:
        """True if it says what files are called, beyond the folders that they are in."""
        return self.components[-1].text not in {"*", _ANY_FOLDERS}

    @cached_property
    def expression(self) -> str:
        """A regular expression for whole paths.

        What lies between two `**` is matched at the first place where it fits, for good: that is
        always right, and no name makes the search long.
        """
        chunks: list[list[Component]] = [[]]
        for each in self.components:
            if each.is_any_folders:
                chunks.append([])
            else:
                chunks[-1].append(each)
        texts = ["/".join(each.expression for each in chunk) for chunk in chunks]
        if len(texts) == 1:
            return texts[0]
        middle = "".join(f"(?>(?:[^/]*/)*?{text}/)" for text in texts[1:-1] if text)
        first = f"{texts[0]}/" if texts[0] else ""
        return first + middle + (f"(?:[^/]*/)*{texts[-1]}" if texts[-1] else ".+")

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.expression, re.DOTALL)

    def matches(self, path: str) -> bool:
        """Return whether it matches a path."""
        return self._compiled.fullmatch(path) is not None


@dataclass(frozen=True, slots=True)
class NameStarts:
    """The ``starts`` of all names that patterns select; none is in one of the ``closed`` folders.

    They tell too much and never too little.
    """

    starts: tuple[str, ...]
    closed: tuple[str, ...] = ()

    def is_disjoint_from(self, other: NameStarts) -> bool:
        """Return whether no name can be selected by both."""
        return all(
            self._excludes(theirs) or other._excludes(ours)  # of the same kind
            for ours in self.starts
            for theirs in other.starts
            if ours.startswith(theirs) or theirs.startswith(ours)
        )

    def _excludes(self, start: str) -> bool:
        return start.startswith(self.closed)


def starts_of(root: str, include: Iterable[str], exclude: Iterable[str]) -> NameStarts:
    """Return how selected names below a root begin. Raises `ValueError` as `parse_globs` does."""
    included = [glob for text in include for glob in parse_globs(text)]
    folders = [glob.folder for text in exclude for glob in parse_globs(text)]
    return NameStarts(
        tuple(f"{root}{glob.start}" for glob in included) or (root,),
        tuple(f"{root}{each.start}/" for each in folders if each is not None and each.is_fixed),
    )


def parse_globs(pattern: str) -> tuple[Glob, ...]:
    """Return the alternatives of a pattern. Raises `ValueError`, saying what to write instead."""
    _check_form(pattern)
    texts: list[str] = []
    characters = 0
    for text in _alternatives(pattern, pattern):
        texts.append(text)
        characters += len(text)
        if len(texts) > MOST_PATTERNS:
            raise ValueError(f"{pattern!r} has more than {MOST_PATTERNS:,} alternatives")
        if len(text) > _MOST_CHARACTERS or characters > _MOST_CHARACTERS_IN_ALL:
            raise ValueError(
                f"{pattern[:40]!r}… has more than {_MOST_CHARACTERS:,} characters, or its"
                f" alternatives more than {_MOST_CHARACTERS_IN_ALL:,}; write shorter ones"
            )
    return tuple(_parse(text, pattern) for text in dict.fromkeys(texts))


def parse_all(patterns: Iterable[str]) -> dict[str, tuple[Glob, ...]]:
    """Return the alternatives of each pattern. Raises `ValueError` as `parse_globs` does."""
    found = {pattern: parse_globs(pattern) for pattern in patterns}
    if sum(map(len, found.values())) > MOST_PATTERNS:
        raise ValueError(f"the patterns have more than {MOST_PATTERNS:,} alternatives")
    return found


def _check_form(pattern: str) -> None:
    if "://" in pattern or pattern.startswith("/"):
        raise ValueError(f"{pattern!r} must be relative to source_uri, without what comes before")
    if any("\ud800" <= character <= "\udfff" or character == "\0" for character in pattern):
        raise ValueError(f"{pattern!r} has a character that no name has")
    if pattern.count("{") > _MOST_BRACES:
        raise ValueError(f"{pattern[:40]!r}… has more than {_MOST_BRACES} braces; write a list")


def _parse(text: str, pattern: str) -> Glob:
    components: list[Component] = []
    for name in _split(text):
        if name in {"", ".", ".."}:
            raise ValueError(
                f"{pattern!r} has an empty component, '.' or '..': write folder/** for all below"
                " a folder"
            )
        component = _component(name, pattern)
        if component.start.startswith(("_", ".")):
            raise ValueError(f"{pattern!r}: names that begin with _ or . are hidden, never data")
        if not (component.is_any_folders and components and components[-1].is_any_folders):
            components.append(component)
    return Glob(tuple(components))


def _split(text: str) -> Iterator[str]:
    """Yield the components; a bracket holds no slash that separates any."""
    begin = at = 0
    while at < len(text):
        if text[at] == "[":
            at = _bracket_end(text, at)
        elif text[at] == "/":
            yield text[begin:at]
            begin = at + 1
        at += 1
    yield text[begin:]


def _bracket_end(text: str, at: int) -> int:
    """Return where the bracket that begins at ``at`` ends. Raises `ValueError`."""
    first = at + 2 if text[at + 1 : at + 2] in {"!", "^"} else at + 1
    end = text.find("]", first + 1)
    if end < 0:
        raise ValueError(f"{text!r} has a [ without ]; write [[] for the bracket itself")
    return end


def _alternatives(text: str, pattern: str) -> Iterator[str]:
    """Yield the text with each choice of its braces."""
    at = 0
    while at < len(text) and text[at] != "{":
        if text[at] == "}":
            raise ValueError(f"{pattern!r} has a }} without {{; write [}}] for the brace itself")
        at = _bracket_end(text, at) + 1 if text[at] == "[" else at + 1
    if at == len(text):
        yield text
        return
    choices, end = _choices(text, at, pattern)
    for choice in choices:
        for inner in _alternatives(choice, pattern):
            for rest in _alternatives(text[end + 1 :], pattern):
                yield text[:at] + inner + rest


def _choices(text: str, at: int, pattern: str) -> tuple[list[str], int]:
    """Return the choices of the brace that begins at ``at``, and where it ends."""
    depth, begin, place = 0, at + 1, at
    choices: list[str] = []
    while place < len(text):
        character = text[place]
        if character == "[":
            place = _bracket_end(text, place)
        elif character == "{":
            depth += 1
        elif character == "," and depth == 1:
            choices.append(text[begin:place])
            begin = place + 1
        elif character == "}":
            depth -= 1
            if not depth:
                choices.append(text[begin:place])
                return _numbers(choices, pattern), place
        place += 1
    raise ValueError(f"{pattern!r} has a {{ without }}; write [{{] for the brace itself")


def _numbers(choices: list[str], pattern: str) -> list[str]:
    if len(choices) > 1:
        return choices
    found = _NUMBERS.fullmatch(choices[0])
    if found is None:
        raise ValueError(
            f"{pattern!r} has {{{choices[0]}}}, which is no choice: write {{a,b}} or {{01..12}}"
        )
    first, last = found[1], found[2]
    if int(first) > int(last) or int(last) - int(first) >= MOST_PATTERNS:
        raise ValueError(
            f"{pattern!r} has {{{choices[0]}}}, which must ascend, to at most {MOST_PATTERNS:,}"
            " numbers"
        )
    is_padded = first.startswith("0") or last.startswith("0")
    width = max(len(first), len(last)) if is_padded else 0
    return [str(number).zfill(width) for number in range(int(first), int(last) + 1)]


def _component(text: str, pattern: str) -> Component:
    if text == _ANY_FOLDERS:
        return Component(text, "", "")
    if _ANY_FOLDERS in text:
        raise ValueError(
            f"{pattern!r}: ** stands alone between two /, as in a/**/b; write * within a name"
        )
    start = ""
    is_start = True
    pieces: list[list[str]] = [[]]
    at = 0
    while at < len(text):
        character = text[at]
        expression = re.escape(character)
        literal: str | None = character
        if character == "*":
            pieces.append([])
            is_start = False
            at += 1
            continue
        if character == "?":
            expression, literal = "[^/]", None
        elif character == "[":
            end = _bracket_end(text, at)
            expression, literal = _bracket(text[at + 1 : end], pattern)
            at = end
        if literal is None:
            is_start = False
        elif is_start:
            start += literal
        pieces[-1].append(expression)
        at += 1
    chunks = ["".join(each) for each in pieces]
    if len(chunks) == 1:
        return Component(text, start, chunks[0])
    middle = "".join(f"(?>[^/]*?{chunk})" for chunk in chunks[1:-1] if chunk)
    return Component(text, start, f"{chunks[0]}{middle}[^/]*{chunks[-1]}")


def _bracket(inner: str, pattern: str) -> tuple[str, str | None]:
    """Return the expression of a bracket, and the character that it stands for, if it is one."""
    if len(inner) == 1 and inner != "/":
        return re.escape(inner), inner
    is_negative = inner[0] in {"!", "^"}
    body = inner[1:] if is_negative else inner
    if "/" in body:
        raise ValueError(f"{pattern!r} has a / in brackets, which stands between folders only")
    parts: list[str] = []
    at = 0
    while at < len(body):
        if body[at + 1 : at + 2] == "-" and at + 2 < len(body):
            low, high = body[at], body[at + 2]
            if low > high:
                raise ValueError(f"{pattern!r} has [{low}-{high}], which must ascend")
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            at += 3
        else:
            parts.append(re.escape(body[at]))
            at += 1
    return f"(?!/)[{'^' if is_negative else ''}{''.join(parts)}]", None


PathColumnType = Literal["string", "int32", "int64", "date", "timestamp", "boolean"]

_NAME = re.compile(r"\{([^{}/]*)\}")


def template_names(template: str) -> tuple[str, ...]:
    """Return the names of columns in a template, in order."""
    return tuple(_NAME.findall(template))


@lru_cache(maxsize=64)
def template_expression(template: str) -> re.Pattern[str]:
    """Return an expression for the first folders of a path, with a group for each name."""
    return re.compile("/".join(map(_folder, template.split("/"))) + "/", re.DOTALL)


def check_path_template(template: str | None) -> str | None:
    """Check the form of a template. Raises `ValueError`, saying what to write instead."""
    if template is None:
        return None
    for part in template.split("/"):
        if part in {"", ".", ".."}:
            raise ValueError(
                f"{template!r} has an empty folder, '.' or '..': write it relative to"
                " source_uri, as in {tenant}/{stream}"
            )
        around = set(_NAME.sub("", part))
        if len(_NAME.findall(part)) > 1 or (part != "*" and not around.isdisjoint("{}*")):
            raise ValueError(
                f"{template!r} has {part!r}: a folder is *, or text with at most one"
                " {name}, as in {tenant} or day-{day}"
            )
    names = template_names(template)
    if len(set(names)) < max(1, len(names)) or "" in names:
        raise ValueError(f"{template!r} must have a {{name}}, and each name once")
    return template


def _folder(part: str) -> str:
    if part == "*":
        return "[^/]+"
    return "([^/]+)".join(map(re.escape, re.split(r"\{[^{}]*\}", part)))
