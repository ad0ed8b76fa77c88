"""The source that a URI belongs to. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import unquote, urlsplit

from blizzard_core.errors import ConfigError
from blizzard_core.storage.opening import normalize_uri, problems_of, scheme_of

_LOCAL = frozenset({"", "file"})
_AZURE = frozenset({"az", "abfs", "abfss"})
# Addresses of objects as consoles of the stores show them.
_KEY = r"(?P<key>[^?#]*)(?:[?#].*)?"
_WEB_ADDRESSES = tuple(
    (re.compile(rf"https?://{host}/{_KEY}", re.DOTALL), template)
    for host, template in (
        (r"(?P<bucket>[^/]+)\.s3[.-][^/]*amazonaws\.com", "s3://{bucket}/{key}"),
        (r"s3[.-][^/]*amazonaws\.com/(?P<bucket>[^/]+)", "s3://{bucket}/{key}"),
        (r"storage\.(?:cloud\.google|googleapis)\.com/(?P<bucket>[^/]+)", "gs://{bucket}/{key}"),
        (
            r"(?P<account>[^/.]+)\.(?:blob|dfs)\.core\.windows\.net/(?P<bucket>[^/]+)",
            "abfss://{bucket}@{account}.dfs.core.windows.net/{key}",
        ),
    )
)


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


# Returns whether a source, by its name, takes a path.
Takes = Callable[[str, str], bool]


def locate(
    uri: str, roots: Mapping[str, str], takes: Takes = lambda _source, _path: True
) -> Located:
    """Find ``uri`` among source roots (name to URI). Raises `ConfigError` if it is no URI.

    Of sources with one root it belongs to the one that ``takes`` its path.

    Names are used unchanged: ``%`` escapes are not decoded, and ``?`` and ``#`` have no meaning.
    Addresses in a browser (``https://BUCKET.s3.….amazonaws.com/KEY``) are the exception: they
    escape names. A relative path counts from here; if no source is there, from the end of a
    source's root, or from the root of the only source.
    """
    found = _locate(_storage_uri(uri), roots, takes)
    if found.source is None and scheme_of(uri) == "" and not uri.startswith("/"):
        ends = [*_below_ends(uri, roots)]
        if len(ends) == 1:
            return _locate(ends[0], roots, takes)
        if ends:
            reason = f"is below several sources: {', '.join(ends)}; give one of these"
            return Located(uri, None, None, reason, found.checked)
    return found


def _locate(uri: str, roots: Mapping[str, str], takes: Takes) -> Located:
    place = _place(uri)
    checked = []
    found: tuple[str, str] | None = None
    for name, root in roots.items():
        top = _top(root).rstrip("/")
        matches = f"{place}/".startswith(f"{top}/") and _one_account(uri, root)
        path = place[len(top) + 1 :]
        if matches and (found is None or takes(name, path)):
            found = (name, path)
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


def _below_ends(path: str, roots: Mapping[str, str]) -> Iterator[str]:
    """Yield full URIs for a relative path: ``raw/x`` is ``s3://b/raw/x`` for a root ``s3://b/raw``.

    The roots that share the most components with it count; none shared is enough for a single root.
    """
    parts = path.removeprefix("./").split("/")
    most = 0 if len(roots) == 1 else 1
    found: dict[str, int] = {}
    for root in roots.values():
        ends = root.rstrip("/").split("/")
        shared = [n for n in range(1, len(parts)) if ends[-n:] == parts[:n]]
        count = max(shared, default=0)
        found["/".join([*ends, *parts[count:]])] = count
    most = max(most, max(found.values(), default=0))
    return (uri for uri, count in found.items() if count == most)


def _storage_uri(uri: str) -> str:
    """Return the URI of an object that is given as a store's web address or ARN, else ``uri``."""
    if uri.startswith("arn:aws:s3:::"):
        return f"s3://{uri.removeprefix('arn:aws:s3:::')}"
    for pattern, template in _WEB_ADDRESSES:
        match = pattern.fullmatch(uri)
        if match is not None:
            parts = {key: unquote(value) for key, value in match.groupdict().items()}
            return template.format(**parts)
    return uri


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
