"""Every spelling of a ``Link`` header leads to the next page, and one that is unread is no end."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from blizzard_core.errors import SourceError
from blizzard_py.connections.http.links import Link, LinkError, links
from tests.blizzard_py.connections.http.world import FakeTime, made, paging, rows_of
from tests.support.api_server import ApiServer, Reply, reply

LINKED = paging("link_header")
# Each leads to /rows?p=2.
SPELLINGS = {
    "plain": '</rows?p=2>; rel="next"',
    "equals in a value before": '</rows?p=2>; title="page=2"; rel="next"',
    "name in capitals": '</rows?p=2>; REL="next"',
    "name in mixed case": "</rows?p=2>; Rel=next",
    "value in capitals": '</rows?p=2>; rel="NEXT"',
    "flag without a value": '</rows?p=2>; crossorigin; rel="next"',
    "several relations": '</rows?p=2>; rel="prev next"',
    "relations without quotes": "</rows?p=2>; rel=http://example.org/up next",
    "blanks around the signs": '< /rows?p=2 > ;\trel = "next" ',
    "nothing between semicolons": '</rows?p=2>;; rel="next";',
    "comma and semicolon in a title": '</rows?p=2>; title="a, b; rel=\\"prev\\""; rel="next"',
    "escapes in the relation": '</rows?p=2>; rel="\\n\\ext"',
    "the first of two relations counts": '</rows?p=2>; rel="next"; rel="prev"',
    "behind other links": '</rows?p=1>; rel="prev", </rows?p=2>; rel=next, </rows?p=9>; rel="last"',
    "behind empty elements": ' , ,</rows?p=2>; rel="next",,',
    "another language's title": "</rows?p=2>; title*=UTF-8''%e2%82%ac%20rates; rel=\"next\"",
    "the same link twice": '</rows?p=2>; rel="next", </rows?p=2>; rel="next"; type="a/b"',
    "one of another resource beside": '</rows?p=7>; rel="next"; anchor="/x", </rows?p=2>; rel=next',
    "relative to the page": '<?p=2>; rel="next"',
}  # fmt: skip


@pytest.mark.promise("G-147")
@pytest.mark.parametrize("header", SPELLINGS.values(), ids=SPELLINGS)
def test_a_next_link_is_followed(api: ApiServer, clock: FakeTime, header: str) -> None:
    api.script(reply([1], Link=header), reply([2]))
    assert rows_of(made(api.url, pages=LINKED), clock) == [1, 2]
    assert (api.asked[1].path, api.asked[1].params) == ("/rows", {"p": "2"})


@pytest.mark.parametrize("path", ["/rows;v=1", "/rows,a", "/rows;rel=prev,x"])
def test_signs_of_the_grammar_may_be_in_a_url(api: ApiServer, clock: FakeTime, path: str) -> None:
    api.script(reply([1], Link=f'<{path}?p=2>; rel="next"'), reply([2]))
    assert rows_of(made(api.url, pages=LINKED), clock) == [1, 2]
    assert api.asked[1].path == path


def test_a_next_link_in_a_second_header_is_followed(api: ApiServer, clock: FakeTime) -> None:
    first = Reply(b"[1]", headers={"Link": '</rows?p=9>; rel="last"', "link": '<?p=2>; rel="next"'})
    api.script(first, reply([2]))
    assert rows_of(made(api.url, pages=LINKED), clock) == [1, 2]


@pytest.mark.promise("G-147")
@pytest.mark.parametrize(
    "header",
    [
        '/rows?p=2; rel="next"',
        '</rows?p=2; rel="next"',
        '</rows?p=2>; rel="next',
        '</rows?p=2> rel="next"',
        '</rows?p=2>; title="a" b; rel="next"',
        '</rows?p=2>; ="x"; rel="next"',
        '</rows?p=2>; title=a"b"; rel="next"',
        '</a>; rel=prev </rows?p=2>; rel="next"',
        "none",
    ],
)
def test_a_header_that_cannot_be_read_stops(api: ApiServer, clock: FakeTime, header: str) -> None:
    api.script(reply([1], Link=header), reply([2]))
    with pytest.raises(SourceError, match=r"page 1: the Link header cannot be read: .* is missing"):
        rows_of(made(api.url, pages=LINKED), clock)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ('<?p=2>; rel="next", <?p=3>; rel="next"', "names 2 different pages"),
        ('<?p=2>; rel="next"; anchor="/other"', "the next page of another resource"),
    ],
)
def test_a_next_link_that_is_not_sure_stops(
    api: ApiServer, clock: FakeTime, header: str, told: str
) -> None:
    api.script(reply([1], Link=header), reply([2]))
    with pytest.raises(SourceError, match=told):
        rows_of(made(api.url, pages=LINKED), clock)


@pytest.mark.parametrize("header", ["", " , ", '</a>; rel="prev"', '</a>; rel="next-archive"'])
def test_no_next_link_is_the_end(api: ApiServer, clock: FakeTime, header: str) -> None:
    api.script(reply([1], Link=header), reply([2]))
    assert rows_of(made(api.url, pages=LINKED), clock) == [1]


def test_a_next_link_of_no_content_is_followed(api: ApiServer, clock: FakeTime) -> None:
    api.script(Reply(status=204, headers={"Link": '<?p=2>; rel="next"'}), reply([2]))
    assert rows_of(made(api.url, pages=LINKED), clock) == [2]


def test_a_next_link_without_paging_stops(api: ApiServer, clock: FakeTime) -> None:
    api.script(reply([1], Link='<?p=2>; rel="next"'), reply([2]))
    with pytest.raises(SourceError, match=r"pages.kind is none; set pages.kind: link_header"):
        rows_of(made(api.url), clock)


@pytest.mark.parametrize("header", ["none", '</style.css>; rel="preload"'])
def test_other_links_without_paging_are_nothing(
    api: ApiServer, clock: FakeTime, header: str
) -> None:
    api.script(reply([1], Link=header))
    assert rows_of(made(api.url), clock) == [1]


TARGETS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="<>"))
NAMES = st.from_regex(r"[a-z][a-z0-9*-]{0,8}", fullmatch=True)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"))
LINKS = st.builds(Link, TARGETS, st.dictionaries(NAMES, VALUES, max_size=4))


def spelled(link: Link) -> str:
    quoted = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in link.params.items()}
    return "; ".join([f"<{link.target}>", *(f'{k}="{v}"' for k, v in quoted.items())])


@pytest.mark.promise("G-147")
@given(st.lists(st.lists(LINKS, max_size=3), max_size=3))
def test_written_links_are_read_back(headers: list[list[Link]]) -> None:
    written = [", ".join(map(spelled, header)) for header in headers]
    assert links(written) == [link for header in headers for link in header]


@given(st.text(st.sampled_from('<>;,="\\ aNext\t'), max_size=30))
@example(text="<>;a=<>")
def test_any_text_is_links_or_an_error(text: str) -> None:
    try:
        found = links([text])
    except LinkError:
        return
    assert len(found) == text.count("<") or '"' in text
