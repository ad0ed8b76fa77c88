"""The fate of one file or task, for people. Writes nothing."""

from __future__ import annotations

from contextlib import closing

from blizzard_core.settings.document import Config
from blizzard_py.app.keyed_merges import with_merge
from blizzard_py.app.wiring import context_of, kind_of, view_of
from blizzard_py.explain import Explanation, Located, explain_unmatched, locate
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.file_names import accepts


def explain(config: Config, uri: str) -> Explanation:
    """Return the fate of the file at ``uri``. Raises `ConfigError` if it is no URI.

    For a table or an API: ``pipeline/source`` is the next task of its window, ``pipeline/source#1``
    another one, and ``pipeline/source#000000000016#0`` one of any window.
    """
    for name, pipeline in config.pipelines.items():
        for source_name in pipeline.query_sources:
            named, _, task = uri.partition("#")
            if named == f"{name}/{source_name}":
                parts = context_of(config, (name, source_name))
                located = Located(uri, parts.name, task, "names it", ())
                return with_merge(name, pipeline, explain_located(parts, located))
    sources = {f"{name}/{source}": each for (_, name, _, source), _, each in config.file_sources()}
    roots = {name: source.source_uri for name, source in sources.items()}
    # Only this command needs what decodes files; the status page imports this module, too.
    from blizzard_py.app.file_content import with_content  # noqa: PLC0415  # see above
    from blizzard_py.app.new_fields import with_untaken  # noqa: PLC0415  # see above

    place = locate(uri, roots, lambda name, path: accepts(sources[name])(path))
    if place.source is None or place.path is None:
        return explain_unmatched(place)
    pipeline_name, _, source_name = place.source.partition("/")
    parts = context_of(config, (pipeline_name, source_name))
    found = explain_located(parts, place)
    found = with_merge(pipeline_name, config.pipelines[pipeline_name], found)
    return with_content(config, parts, with_untaken(config, parts, found))


def explain_located(parts: SourceContext, place: Located) -> Explanation:
    """Return the fate of a file of the source. Raises `StateError`, `StorageError`."""
    with closing(view_of(parts)) as found:
        return kind_of(parts).explain(parts, found.source, place)
