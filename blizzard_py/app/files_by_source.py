"""Sources of files that are named by their URIs."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_py.app.configuration import source_of
from blizzard_py.app.event_time import refuse_rows
from blizzard_py.app.operations import sources_of
from blizzard_py.explain import locate
from blizzard_py.sources.files.file_names import accepts


def files_by_source(
    config: Config, uris: Sequence[str], names: tuple[str | None, str | None]
) -> dict[tuple[str, str], list[str]]:
    """Return the paths of the files below their sources, each once; ``names`` narrow these down.

    Raises `ConfigError` for a URI that lies below no source's root, or below several.
    """
    sources = {
        where: source
        for where in sources_of(config, *names)
        if (source := source_of(config, where).as_files) is not None
    }
    roots = {where: source.uri for where, source in sources.items()}
    if not roots:
        raise ConfigError(
            "--pipeline, --source",
            ["has no files to ingest; `blizzard backfill` reads what a table or an API has again"],
        )
    chosen: dict[tuple[str, str], dict[str, None]] = {}
    problems: list[str] = []
    every = {"/".join(where): root for where, root in roots.items()}
    for uri in uris:
        # Among all of them, since a relative path could lie below any single one.
        found = locate(uri, every)
        homes = {
            where: place.path
            for where, root in roots.items()
            if found.path and (place := locate(found.uri, {"/".join(where): root})).path
        }
        takers = {where: path for where, path in homes.items() if accepts(sources[where])(path)}
        match list((takers if len(takers) == 1 else homes).items()):
            case [(where, path)]:
                chosen.setdefault(where, {})[path] = None
            case []:
                known = ", ".join(sorted(set(roots.values())))
                why = f"; it {found.reason}" if found.source is None else ""
                problems.append(f"{uri}: names no file below {known}{why}")
            case several:
                listed_names = ", ".join("/".join(where) for where, _ in several)
                problems.append(
                    f"{uri}: lies below the roots of {listed_names}; say which with --pipeline and"
                    " --source"
                )
    if problems:
        raise ConfigError("URI", problems)
    for where in chosen:
        refuse_rows(config, where, "`blizzard ingest`")
    return {where: list(paths) for where, paths in chosen.items()}
