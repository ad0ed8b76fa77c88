"""How much of anything foreign is taken, by name: what readers, kernels and servers stop at.

Whoever writes a file, sends an answer or opens a connection decides how much there is of it;
here stands how much of that this process goes along with. The code takes its bounds from here
and from nowhere else, so `docs/limits.md`, which `blizzard_core.settings.reference` makes of the
same lines, cannot say anything else. What is beyond a bound is refused with its reason, and
costs nobody beside it anything.

A bound that somebody may need to move has a configuration key, whose default it is.
"""

from __future__ import annotations

from dataclasses import dataclass

_ERRORS = "pipelines.NAME.error_handling"


@dataclass(frozen=True, slots=True)
class Bound:
    """One line of the table: ``of`` what, what happens ``beyond`` it, the test that shows it.

    ``unit`` is ``bytes`` or empty; ``key`` where the configuration can move it.
    """

    area: str
    of: str
    value: int
    unit: str
    beyond: str
    test: str
    key: str = ""


BOUNDS: list[Bound] = []


def _bound(
    area: str, of: str, value: int, beyond: str, test: str, *, unit: str = "", key: str = ""
) -> int:
    BOUNDS.append(Bound(area, of, value, unit, beyond, test, key))
    return value


# --- source files ---------------------------------------------------------------------------

_FILES = "Source files"

EXPANSION = _bound(
    _FILES,
    "Expansion: what a file becomes once it is unpacked, for each byte stored. An empty value"
    " of a row counts as a quarter of a byte",
    256,
    "the file is quarantined, stage `decompress`",
    "test_task_bounds.py::test_what_expands_too_far_is_quarantined_and_nothing_else",
    key=f"{_ERRORS}.max_expansion",
)
EXPANSION_FREE_BYTES = _bound(
    _FILES,
    "What any file may become, however small it is",
    16 << 20,
    "the expansion counts",
    "test_task_bounds.py::test_small_files_may_expand_as_far_as_they_like",
    unit="bytes",
)
LINE_BYTES = _bound(
    _FILES,
    "A line",
    64 << 20,
    "a bad record; the line is passed over without being held",
    "test_framing.py::test_a_line_above_the_limit_is_passed_over",
    unit="bytes",
)
LINE_CELLS = _bound(
    _FILES,
    "Values of a line: columns, and for each object in it those that a list or map of objects has",
    16 << 20,
    "a bad record",
    "test_portions.py::test_a_line_of_too_many_values_is_passed_over",
)
CHUNK_CELLS = _bound(
    _FILES,
    "Rows times columns that are parsed at once. A row counts as 16 columns at least, a column of"
    " raw JSON as 8",
    2 << 20,
    "the rest of the chunk is parsed after it",
    "test_portions.py::test_chunks_of_many_rows_are_cut",
)
PARSER_DEATHS = _bound(
    _FILES,
    "Processes that die of a file's lines",
    500,
    "the file is quarantined, stage `parse`",
    "test_isolate.py::test_a_file_that_kills_without_end_is_given_up",
)
DIRECTORIES = _bound(
    _FILES,
    "Directories of the table that a file's rows go to, and so the outputs that it makes small",
    1000,
    "the file is quarantined, stage `partition`",
    "test_task_bounds.py::test_a_file_of_too_many_directories_is_quarantined_and_nothing_else",
    key=f"{_ERRORS}.max_directories_per_file",
)
COMPONENT_BYTES = _bound(
    _FILES,
    "The name of a directory that is made of a value",
    255,
    "a bad record, stage `partition`",
    "test_partition.py::test_a_value_that_no_directory_can_have_names_its_rows",
    unit="bytes",
)

# --- dead letters ---------------------------------------------------------------------------

_LETTERS = "Dead letters"

LETTERS = _bound(
    _LETTERS,
    "Letters of a file's bad records; of its rows out of time as many in each task",
    100_000,
    "the rest is counted: in the last letter, `bad_rows` and the file's error. A file of which more"
    " than `max_bad_fraction` is bad up to there is quarantined without reading on",
    "test_task_bounds.py::test_letters_of_a_file_are_bounded_and_the_rest_is_counted",
    key=f"{_ERRORS}.max_letters_per_file",
)
LETTERS_BYTES = _bound(
    _LETTERS,
    "Letters of a file's bad records, together",
    64 << 20,
    "as with their number",
    "test_task_bounds.py::test_letters_of_long_lines_are_bounded_by_their_bytes",
    unit="bytes",
)
RAW_BYTES = _bound(
    _LETTERS,
    "What a letter holds of a line",
    64 << 10,
    "`truncated`; a replay reads the file again",
    "test_bad_records.py::test_a_line_above_the_limit_is_a_record_and_not_the_end_of_its_file",
    unit="bytes",
)
ROW_BYTES = _bound(
    _LETTERS,
    "What a letter holds of a row of a table or an API",
    512 << 10,
    "`truncated`",
    "test_asked_source.py::test_rows_that_do_not_fit_are_letters_with_the_row_and_the_statement",
    unit="bytes",
)
REASON_CHARACTERS = _bound(
    _LETTERS,
    "The reason in a letter, in characters",
    500,
    "cut, with `…`",
    "test_task_bounds.py::test_reasons_are_cut",
)
LETTER_BYTES = _bound(
    _LETTERS,
    "A letter that is read",
    4 << 20,
    "the replay refuses its object, naming the line",
    "test_replay.py::test_a_letter_that_is_none_is_refused_and_named",
    unit="bytes",
)

# --- inferred schemas -----------------------------------------------------------------------

_INFERRED = "Inferred schemas"

INFERRED_COLUMNS = _bound(
    _INFERRED,
    "Columns of a table",
    1000,
    "left out, with a warning; declare what is wanted",
    "test_inference.py::test_columns_beyond_what_a_table_has_are_left_out_and_told",
)
INFERRED_VALUES = _bound(
    _INFERRED,
    "Values of a row, fields of objects counted: a line of a megabyte has room for 100,000",
    4000,
    "objects behind them are `json`",
    "test_inference.py::test_objects_beyond_what_a_row_may_hold_are_json",
)
NAME_BYTES = _bound(
    _INFERRED,
    "The name of a column or field",
    255,
    "left out; an object with such a name is `json`",
    "test_inference.py::test_names_that_are_too_long_are_left_out",
    unit="bytes",
)
INFERRED_LEVELS = _bound(
    _INFERRED,
    "Levels of objects and arrays",
    # One below those of a column that is committed: what stands in the last of them counts.
    23,
    "`json`",
    "test_inference.py::test_what_is_nested_deeply_is_json_from_some_depth_on",
)
STRUCT_FIELDS = _bound(
    _INFERRED,
    "Names of an object",
    256,
    "`json`",
    "test_inference.py::test_values_have_the_narrowest_type_that_keeps_them",
)

UNEXPECTED_FIELDS = _bound(
    _INFERRED,
    "Fields without a column that are told of a source, and that a batch makes columns of at once",
    100,
    "not told; a batch looks again for what is left, ten times",
    "test_new_fields.py::test_names_beyond_those_that_are_told_are_passed_over",
)
UNEXPECTED_VALUES_BYTES = _bound(
    _INFERRED,
    "Values of new fields that a task tells the driver, for their types",
    256 << 10,
    "the values behind do not count for the type",
    "test_new_fields.py::test_values_that_are_told_are_bounded",
    unit="bytes",
)

# --- configurations -------------------------------------------------------------------------

_CONFIGURATIONS = "Configurations"

CONFIG_BYTES = _bound(
    _CONFIGURATIONS,
    "A file",
    4 << 20,
    "refused",
    "test_yaml_file.py::test_a_large_file_is_not_read",
    unit="bytes",
)
CONFIG_VALUES = _bound(
    _CONFIGURATIONS,
    "Values of a file, aliases counted",
    250_000,
    "refused",
    "test_yaml_file.py::test_aliases_that_grow_are_refused",
)
CONFIG_NUMBER = _bound(
    _CONFIGURATIONS,
    "Characters of a number",
    400,
    "refused",
    "test_yaml_file.py::test_a_number_of_many_digits_is_refused_before_it_is_counted",
)

# --- tables and APIs ------------------------------------------------------------------------

_ASKED = "Tables and APIs"

ANSWER_BYTES = _bound(
    _ASKED,
    "An answer of an API, unpacked",
    64 << 20,
    "the window fails and is asked for again; ask for smaller pages",
    "test_faults.py::test_an_answer_above_its_limit_fails_packed_or_not",
    unit="bytes",
)
ANSWER_VALUES = _bound(
    _ASKED,
    "Values of an answer",
    8 << 20,
    "the window fails and is asked for again; ask for smaller pages",
    "test_answer_text.py::test_too_many_values_are_refused_before_they_are_cut",
)
REQUEST_RANGES = _bound(
    _ASKED,
    "Requests that a window of an API is cut into",
    10_000,
    "the source stops with the remedy: a longer range for each",
    "test_request_windows.py::test_too_many_ranges_are_refused",
)
CSV_COLUMNS = _bound(
    _ASKED,
    "Columns of a CSV file",
    10_000,
    "the source stops with the file's name",
    "test_text_files.py::test_a_header_of_too_many_columns_is_refused_at_once",
)
CSV_BAD_ROWS = _bound(
    _ASKED,
    "Rows of a CSV file that have another number of fields than its header, without one in"
    " 8 MiB that has it, or in 8 MiB",
    100_000,
    "the source stops with the file's name: most likely it has another delimiter",
    "test_text_files.py::test_a_file_of_bad_rows_alone_is_not_held",
)

TABLE_ROW_BYTES = _bound(
    _ASKED,
    "A row of a Parquet file of a table",
    64 << 20,
    "the source stops with the names of file and column",
    "test_hostile_parquet.py::test_a_row_that_is_too_large_is_refused",
    unit="bytes",
)
TABLE_WATCHED_BYTES = _bound(
    _ASKED,
    "What the next batch of a Parquet file of a table may take, by its types and the headers of"
    " its pages",
    128 << 20,
    "the rest of the file is read in a process of its own, which takes longer",
    "test_hostile_parquet.py::test_small_files_cost_bounded_memory",
    unit="bytes",
)
TABLE_APART_BYTES = _bound(
    _ASKED,
    "What that process may take, beside the 100 MB of any",
    256 << 20,
    "the source stops with the names of file and column",
    "test_hostile_parquet.py::test_small_files_cost_bounded_memory",
    unit="bytes",
)
TABLE_APART_PER_BYTE = _bound(
    _ASKED,
    "And for each byte that the columns of its largest row group take in the file: some writers"
    " make a page of a whole row group",
    8,
    "the same",
    "test_hostile_parquet.py::test_an_honest_file_with_pages_as_large_as_its_row_groups_is_read",
)
TABLE_APART_MOST_BYTES = _bound(
    _ASKED,
    "Both together",
    2 << 30,
    "the same",
    "test_hostile_parquet.py::test_what_a_file_may_take_apart_follows_from_what_it_stores",
    unit="bytes",
)
TABLE_FOOTER_BYTES = _bound(
    _ASKED,
    "The footer of a Parquet file of a table",
    8 << 20,
    "the source stops with the file's name",
    "test_hostile_parquet.py::test_a_long_footer_is_not_read",
    unit="bytes",
)

# --- listings and the status page -----------------------------------------------------------

_SERVED = "Listings and the status page"

PAGE_KEYS = _bound(
    _SERVED,
    "Names of a page of a listing (Azure: 5,000)",
    1000,
    "the next page",
    "test_storage.py::test_a_listing_over_many_pages_is_complete",
)
FIRST_PAGE_KEYS = _bound(
    _SERVED,
    "Names of the first page, since most polls find little",
    100,
    "the next page",
    "test_storage.py::test_a_stopped_listing_costs_one_small_page",
)
SCAN_FILES = _bound(
    _SERVED,
    "New files that a look for files holds",
    50_000,
    "the rest comes with the next look",
    "test_costs.py::test_a_discovery_holds_a_bounded_scan_and_not_what_is_stored",
)
CONNECTIONS = _bound(
    _SERVED,
    "Connections to the status page",
    64,
    "of whoever has most, the one that was heard of least lately is cut off",
    "test_web.py::test_more_connections_than_there_may_be_cut_off_who_was_heard_of_least_lately",
)

STORY_CHARACTERS = _bound(
    _SERVED,
    "Characters of a URI that the page is asked about",
    2048,
    "the question is refused",
    "test_page.py::test_a_question_is_bounded_in_length_and_in_who_asks",
)
STORY_REQUESTS = _bound(
    _SERVED,
    "Requests to stores that questions to the page may cause at once; 10 a second come back",
    3000,
    "the question is refused with the command that asks on a terminal",
    "test_source_page.py::test_questions_cost_no_more_requests_than_are_allowed",
)
SHOWN_STATE_BYTES = _bound(
    _SERVED,
    "A state file of the other daemon that the page shows",
    8 << 20,
    "only its age is shown",
    "test_written.py::test_a_state_file_that_is_too_large_is_not_read",
    unit="bytes",
)
SHOWN_BATCH_BYTES = _bound(
    _SERVED,
    "An object of the journal that the page shows",
    16 << 20,
    "its age and its size are shown",
    "test_source_page.py::test_what_is_no_batch_costs_the_history_itself_alone",
    unit="bytes",
)
SHOWN_COMMIT_BYTES = _bound(
    _SERVED,
    "A commit of which the page tells",
    2 << 20,
    "its beginning is told of, with a + behind the numbers",
    "test_commits.py::test_of_a_long_commit_the_beginning_is_told",
    unit="bytes",
)

# --- Parquet files that Penguin commits -----------------------------------------------------

_PARQUET = "Parquet files that Penguin commits"

FOOTER_BYTES = _bound(
    _PARQUET,
    "A footer",
    # Some 20,000 column chunks: 200 columns in 100 row groups. One that is made for it takes
    # thirty times as much when it is decoded.
    4 << 20,
    "the file is quarantined",
    "test_file_contract.py::test_a_footer_that_is_said_to_be_a_gigabyte_is_not_read",
    unit="bytes",
)
FOOTERS_DECODED_BYTES = _bound(
    _PARQUET,
    "Footers of a batch, decoded",
    96 << 20,
    "the files behind wait for the next batch",
    "test_file_contract.py::test_long_footers_are_kept_a_few_at_a_time_and_all_are_committed",
    unit="bytes",
)
FILE_COLUMNS = _bound(
    _PARQUET,
    "Columns of a file",
    10_000,
    "the file is quarantined",
    "test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns",
)
NEW_COLUMNS = _bound(
    _PARQUET,
    "Columns that a commit adds to the table",
    1000,
    "the file is quarantined",
    "test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns",
    key="tables.NAME.max_new_columns",
)
FILE_LEVELS = _bound(
    _PARQUET,
    "Levels of a column",
    # delta-rs reads the schema again with a JSON parser that gives up at 128 levels, of
    # which a struct takes three.
    24,
    "the file is quarantined",
    "test_file_contract.py::test_a_schema_too_deep_for_delta_rs_is_refused",
)
FOOTER_LEVELS = _bound(
    _PARQUET,
    "Levels of the footer itself",
    64,
    "the file is quarantined",
    "test_footers.py::test_no_footer_ends_the_process",
)
FOOTER_ITEMS = _bound(
    _PARQUET,
    "Items of a list, and bytes of a text, in a footer",
    1_000_000,
    "the file is quarantined",
    "test_footers.py::test_no_footer_ends_the_process",
)
GROUP_ROWS = _bound(
    _PARQUET,
    "Rows of a row group: readers count them in 32 bits",
    (1 << 31) - 1,
    "the file is quarantined",
    "test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed",
)
ROWS_PER_BYTE = _bound(
    _PARQUET,
    "Rows for each byte of a file: a page of one repeated value takes some 20 bytes",
    1 << 16,
    "the file is quarantined",
    "test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed",
)
OUTPUT_ID_BYTES = _bound(
    _PARQUET,
    "An output id: thousands are in each commit and in the mirror",
    1024,
    "the file is quarantined",
    "test_footers.py::test_an_output_id_that_is_none_is_refused",
    unit="bytes",
)
QUARANTINE_BYTES = _bound(
    _PARQUET,
    "The short object of the quarantine: some 2,500 lines",
    1 << 19,
    "its lines move to an object of their own",
    "test_quarantine.py::test_the_short_object_moves_when_it_has_grown",
    unit="bytes",
)
