"""The source that a URI belongs to. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import urlsplit

from blizzard_core.errors import ConfigError
from blizzard_core.storage.opening import normalize_uri, problems_of, scheme_of

_LOCAL = frozenset({"", "file"})
_AZURE = frozenset({"az", "abfs", "abfss"})


@dataclass(frozen=True, slots=True)
class Checked:
    """One configured source and whether the URI lies below its root, with the reason."""

    source: str
    root: str
    matches: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Located:
    """A URI among the sources: the one it belongs to and its path there, or None and why."""

    uri: str
    source: str | None
    path: str | None
    reason: str
    checked: tuple[Checked, ...]


def locate(uri: str, roots: Mapping[str, str]) -> Located:
    """Find ``uri`` among source roots (name to URI). Raises `ConfigError` if it is no URI.

    Names are used unchanged: ``%`` escapes are not decoded, and ``?`` and ``#`` have no meaning.
    Local paths may be relative.
    """
    place = _place(uri)
    checked = []
    found: tuple[str, str] | None = None
    for name, root in roots.items():
        top = _top(root).rstrip("/")
        matches = f"{place}/".startswith(f"{top}/") and _one_account(uri, root)
        if matches:
            found = (name, place[len(top) + 1 :])
        reason = "lies below its root" if matches else "lies outside its root"
        checked.append(Checked(name, normalize_uri(root), matches, reason))
    shown = place if scheme_of(uri) in _LOCAL else uri
    if found is not None:
        return Located(shown, found[0], found[1], "lies below its root", tuple(checked))
    if not checked:
        return Located(shown, None, None, "the configuration has no sources", ())
    nearest = max(checked, key=lambda c: _nearness(place, _top(c.root)))
    reason = f"is outside of all sources' roots; the nearest is {nearest.source} at {nearest.root}/"
    return Located(shown, None, None, reason, tuple(checked))


def _place(uri: str) -> str:
    """Return where a file is: as `_top`, but with an object's key left as it stands."""
    scheme = scheme_of(uri)
    if scheme in _LOCAL:
        return normalize_uri(uri)
    host, slash, key = uri.partition("://")[2].partition("/")
    bucket = f"{scheme}://{host}"
    try:
        problems = problems_of(bucket, {})
        top = _top(bucket)
    except ValueError as error:
        raise ConfigError("URI", [str(error)]) from error
    if problems:
        raise ConfigError("URI", problems)
    return f"{top}{slash}{key}"


def _top(root: str) -> str:
    """One spelling per root. Azure's account is left out: it may stand in the options instead."""
    place = normalize_uri(root)
    if scheme_of(root) not in _AZURE:
        return place
    host, slash, path = place.partition("://")[2].partition("/")
    return f"az://{host.partition('@')[0]}{slash}{path}"


def _one_account(uri: str, root: str) -> bool:
    """Return whether two Azure URIs can be of one account: they are unless both say and differ."""
    if scheme_of(uri) not in _AZURE:
        return True
    accounts = {
        host.rpartition("@")[2].partition(".")[0]
        for host in (urlsplit(uri).netloc, urlsplit(root).netloc)
        if "@" in host
    }
    return len(accounts) < 2


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many items (characters, components) two sequences begin with alike."""
    alike = (a == b for a, b in zip(left, right, strict=False))
    return sum(1 for _ in takewhile(bool, alike))


def _nearness(place: str, root: str) -> tuple[int, int]:
    return _shared(place.split("/"), root.split("/")), _shared(place, root)
