"""A YAML file as plain data, and all of its problems.

Three things are more than plain YAML:

* ``${VAR}`` and ``${VAR:-default}`` in strings come from the environment; ``$${`` is a literal
  ``${``, and ``$$VAR`` a literal ``$VAR``; other forms of variables are problems;
* ``${file:path}`` comes from a file;
* a key that is given twice is a problem; one that replaces a key of ``<<`` is not.

Every problem names the path of the value in the file and its line. Substitution happens after
parsing, so a value cannot change the structure of the document. Untrusted files are safe: a file
that is too large, too deeply nested, or grows by aliases is refused before it is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.limits import CONFIG_BYTES, CONFIG_NUMBER, CONFIG_VALUES
from blizzard_core.settings.secret_files import SecretFiles, SecretUnreadable

# YAML lets it be written, and the environment have it.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_BARE = r"[A-Z][A-Z0-9_]+\b"
# Behind a dollar: it does not stand for itself, unless another one is before it.
BEGINS_VARIABLE = re.compile(rf"\{{|{_BARE}")
# A default ends before the next variable begins. So many unclosed variables cost no quadratic time.
_VARIABLE = re.compile(
    r"\$\$\{|\$\{(file:[^}:]+|[A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?>[^}$]|\$(?!\{)))*+))?\}"
    # The forms of other tools, which would be taken literally. Lower case is as likely a pattern.
    rf"|\$\$(?P<literal>{_BARE})|\$(?P<bare>{_BARE})"
    r"|\$\{(?P<other>(?>[A-Za-z_][A-Za-z0-9_]*))?+(?P<rest>[^}]{0,3})"
)
_TRUTH, _TEXT = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:str"
_INT, _FLOAT = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
# A tag lets YAML count in 60s, in a time that grows with the square of their number.
_NUMBERS = frozenset({_INT, _FLOAT})
# Everything else without quotes is text, as in YAML 1.2. PyYAML follows YAML 1.1, in which `off`
# and `NO` are false, `12:30:00` is 45000, `010` is 8 and a date is no text. A setting that
# is a truth, a number or a time reads it from text as well.
_PLAIN = (
    (_TRUTH, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_INT, r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    (
        _FLOAT,
        r"[-+]?(?:(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)",
        "-+0123456789.",
    ),
)
_REPLACED = frozenset({_TRUTH, _INT, _FLOAT, "tag:yaml.org,2002:timestamp"})

Key = tuple[str | int, ...]


class SettingPlace(NamedTuple):
    """The place where a value stands; ``key`` is another one than its use if it is a default."""

    key: Key
    line: int
    file: Path

    def shown(self, source: str, below: Key = ()) -> str:
        """Return ``pipelines.a (line 3)``, with its file if that is not the whole ``source``."""
        file = "" if str(self.file) == source else f"{self.file}, "
        return f"{dotted((*self.key, *below)) or '(top level)'} ({file}line {self.line})"


class SettingProblem(NamedTuple):
    """A problem with a key."""

    key: Key
    text: str


# A shorter value of the environment is as likely a word of a message as a secret.
SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True)
class Document:
    """The parsed configuration: ``data``, the problems so far, and the place of every value.

    ``filled`` are values of the environment and of files in it, by which name each was asked
    for; ``secrets`` has the files.
    """

    source: str
    data: Any
    problems: tuple[str, ...]
    places: Mapping[Key, SettingPlace] = field(default_factory=dict)
    filled: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: SecretFiles = field(default_factory=SecretFiles, repr=False)

    def locate(self, path: Key) -> str:
        """``pipelines.events.sink (line 12)``; the nearest enclosing line if it has none.

        With several files the file is named, too.
        """
        for cut in range(len(path), -1, -1):
            place = self.places.get(path[:cut])
            if place is not None:
                return place.shown(self.source, path[cut:])
        return dotted(path) or "(top level)"

    def as_written(self, text: str) -> str:
        """Return a message with ``${NAME}`` in the place of each value filled in.

        Any filled-in value may be a secret, and the message of a check may quote it.
        """
        for value in sorted(self.filled, key=len, reverse=True):
            for spelled in (value, repr(value)[1:-1]):
                text = text.replace(spelled, f"${{{self.filled[value]}}}")
        return text


def dotted(path: Key) -> str:
    """Return ``("a", 0, "b")`` as ``a[0].b``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def load_yaml(path: Path, environment: Mapping[str, str], source: str = "") -> Document:
    """Read, parse and fill in. Raises `ConfigError` if there is no document to speak of.

    Keys of the first level that begin with ``x-`` are left out. ``source`` is the folder whose
    files are one configuration.
    """
    unfilled = parse_yaml(path, source)
    problems = list(unfilled.problems)
    filling = _Filling(environment, unfilled, problems, {})
    data = {key: value for key, value in unfilled.data.items() if not str(key).startswith("x-")}
    return replace(
        unfilled,
        data=filling.of(data, ()),
        problems=tuple(problems),
        filled=filling.filled,
    )


def parse_yaml(path: Path, whole: str = "") -> Document:
    """Read and parse, as it is written. Raises `ConfigError` as `load_yaml`."""
    source = str(path)
    text = _text(path, is_one_of_many=whole not in ("", source))
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        _check_size(source, root)
        repeated: list[SettingPlace] = []
        # Before `<<` is resolved, which puts what it brings beside the keys that replace it.
        _walk(root, (), path, {}, repeated)
        data = None if root is None else loader.construct_document(root)
    except yaml.YAMLError as error:
        raise ConfigError(source, [f"is not YAML: {_parser_message(error, text)}"]) from error
    except RecursionError:
        raise ConfigError(source, ["is nested too deeply to be a configuration"]) from None
    if data is None and whole not in ("", source):
        # Perhaps half written: its pipelines must not vanish in silence.
        raise ConfigError(source, ["has no keys; give it some, or delete it"])
    if not isinstance(data, dict):
        raise ConfigError(source, ["must be a mapping with at least `pipelines` or `tables`"])
    places: dict[Key, SettingPlace] = {}
    _walk(root, (), path, places, [])
    problems = [f"{place.shown(whole or source)}: key given twice" for place in repeated]
    return Document(whole or source, data, tuple(problems), places)


def _text(path: Path, *, is_one_of_many: bool) -> str:
    """Return what the file holds. A pipe may be given by name, and would block in a folder."""
    source = str(path)
    if is_one_of_many and path.exists() and not path.is_file():
        raise ConfigError(source, ["is no file (a folder or a pipe); move it elsewhere"])
    try:
        with path.open("rb") as file:  # devices and pipes say nothing of their size
            data_read = file.read(CONFIG_BYTES + 1)
        if len(data_read) > CONFIG_BYTES:
            raise ConfigError(source, [f"is larger than {CONFIG_BYTES >> 20} MiB; split it"])
        return data_read.decode("utf-8").replace("\r\n", "\n")
    except FileNotFoundError:
        what = "no such file; `blizzard init` writes a first one"
        if path.is_symlink():
            what = "is a link to a file that is not there; correct or delete it"
        raise ConfigError(source, [what]) from None
    except UnicodeDecodeError as error:
        raise ConfigError(source, [f"is not UTF-8 text ({error}); save it as UTF-8"]) from error
    except OSError as error:
        raise ConfigError(source, [f"cannot be read: {error}"]) from error


class _Loader(yaml.SafeLoader):
    """Loads plain data; raises `yaml.YAMLError` for everything else.

    PyYAML itself raises other errors for the 99th day of a month, a wrong tag, or a number with too
    many digits.
    """

    yaml_implicit_resolvers = {  # noqa: RUF012  # the library's attribute
        first: [pair for pair in pairs if pair[0] not in _REPLACED]
        for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node. Raises `yaml.constructor.ConstructorError`."""
        kind = node.tag.rpartition(":")[2]
        if node.tag in _NUMBERS and len(node.value) > CONFIG_NUMBER:
            problem = f"a number of more than {CONFIG_NUMBER} characters"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        try:
            return super().construct_object(node, deep)
        except (ValueError, ArithmeticError, LookupError, AttributeError) as error:
            problem = f"there is no such {kind}; put quotes around a text"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping of a node; its keys are words, also `true`."""
        node.value = [(_as_word(key), value) for key, value in node.value]
        return super().construct_mapping(node, deep)


for _tag, _form, _first in _PLAIN:
    _Loader.add_implicit_resolver(_tag, re.compile(rf"(?:{_form})\Z"), list(_first))


def _as_word(key: yaml.Node) -> yaml.Node:
    if key.tag != _TRUTH:
        return key
    return yaml.ScalarNode(_TEXT, key.value, key.start_mark, key.end_mark)


def _check_size(source: str, root: yaml.Node | None) -> None:
    """Raise `ConfigError` for a document that aliases make endless, or larger than it may be."""
    sizes: dict[int, int | None] = {}

    def measured(node: yaml.Node) -> int:
        known = sizes.get(id(node), 0)
        if known is None:
            line = node.start_mark.line + 1
            raise ConfigError(source, [f"line {line}: holds itself by an alias; write it out"])
        if known:
            return known
        sizes[id(node)] = None
        inner: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inner = [part for pair in node.value for part in pair]
        elif isinstance(node, yaml.SequenceNode):
            inner = node.value
        # A sum is whole before it is looked at: it has as many digits as there are levels.
        sizes[id(node)] = size = 1 + sum(map(measured, inner))
        return size

    if root is not None and measured(root) > CONFIG_VALUES:
        raise ConfigError(
            source, [f"has more than {CONFIG_VALUES:,} values, aliases counted; split it"]
        )


def _parser_message(error: yaml.YAMLError, text: str) -> str:
    """Return where the parser gave up and why, and the remedy for what goes wrong most."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    hint = ""
    if line.startswith("\t"):
        hint = "; indent with spaces, not tabs"
    elif "${" in line:
        hint = '; put quotes around "${VAR}" inside { } and [ ]'
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', '')}{hint}"


def _walk(
    node: yaml.Node | None,
    at: Key,
    file: Path,
    places: dict[Key, SettingPlace],
    repeated: list[SettingPlace],
) -> None:
    if node is None:
        return
    places.setdefault(at, SettingPlace(at, node.start_mark.line + 1, file))
    if isinstance(node, yaml.MappingNode):
        # A key replaces what `<<` brought under its name, which stands before it.
        valid = {str(key.value): value for key, value in node.value}
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            place = SettingPlace((*at, name), key.start_mark.line + 1, file)
            if name in seen:
                repeated.append(place)
            seen.add(name)
            if valid[name] is value:
                places[place.key] = place
                _walk(value, place.key, file, places, repeated)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _walk(value, (*at, index), file, places, repeated)


def _other_form(match: re.Match[str]) -> str:
    """Return what is wrong with a variable in the form of another tool, without its default."""
    name = match["bare"] or match["other"] or "VAR"
    if match["bare"]:
        return f"${name} is not filled in; write ${{{name}}}, or $${name} for the text itself"
    found = match["rest"].removeprefix(":")[:1]
    default = f"; a default follows :-, as in ${{{name}:-…}}" if found in {*"-=?+"} else ""
    return (
        f"${{ is not followed by a variable; write ${{{name}}}{default}, or $${{ for the text ${{"
    )


@dataclass(frozen=True)
class _Filling:
    """Puts values of the environment into the strings of a document."""

    environment: Mapping[str, str]
    document: Document
    problems: list[str]
    filled: dict[str, str]

    def of(self, value: Any, path: Key) -> Any:
        """Return the value with everything below it filled in."""
        if isinstance(value, dict):
            return {self._text(k, path): self.of(v, (*path, str(k))) for k, v in value.items()}
        if isinstance(value, list):
            return [self.of(v, (*path, i)) for i, v in enumerate(value)]
        if not isinstance(value, str):
            return value
        return self._text(_VARIABLE.sub(lambda match: self._value(match, path), value), path)

    def _text(self, value: Any, path: Key) -> Any:
        """Replace characters that no file name, store or log can hold; each is a problem."""
        if not isinstance(value, str) or not (found := _NO_TEXT.search(value)):
            return value
        what = "a NUL character" if found[0] == "\0" else "half of a surrogate pair"
        self.problems.append(f"{self.document.locate(path)}: has {what}")
        return _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", value)

    def _value(self, match: re.Match[str], path: Key) -> str:
        name, default = match.group(1), match.group(2)
        if match["bare"] or match["rest"] is not None:
            self.problems.append(f"{self.document.locate(path)}: {_other_form(match)}")
            return ""
        if match["literal"]:
            return f"${match['literal']}"
        if name is None:
            return "${"
        try:
            found = self._found(name)
        except SecretUnreadable as error:
            found = ""
            if default is None:
                self.problems.append(f"{self.document.locate(path)}: {error}")
        if not found and default is not None:
            return str(default)
        if len(found) >= SHORTEST_SECRET:
            self.filled[found] = name
        return found

    def _found(self, name: str) -> str:
        """Return the text of a variable or a file. Raises `SecretUnreadable`."""
        if name.startswith("file:"):
            folder = self.document.places[()].file.absolute().parent
            return self.document.secrets.text(str(folder / name.removeprefix("file:")))
        found = self.environment.get(name)
        if found is None:
            raise SecretUnreadable(f"environment variable {name} is not set")
        return found
