"""The page docs/reference/limits.md, from the constants of `blizzard_core.limits`.

`TESTS` names the test that shows what happens beyond each limit.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from blizzard_core import limits

_HEAD = """\
# Limits

Files, answers, configurations and connections are accepted up to these limits. Data beyond a limit
costs neither the process nor other sources. A limit that honest data may reach has a configuration
key; the number is its default.
"""

_MIB, _KIB = 1 << 20, 1 << 10
_SECTION = "# --- "
_TEXT = re.compile(r"(?P<of>.+)\. Beyond: (?P<beyond>.+?)\.(?: Key: (?P<key>\S+))?")

TESTS = {
    "EXPANSION": "test_task_bounds.py::test_excessive_expansion_quarantines_only_that_file",
    "EXPANSION_FREE_BYTES": "test_task_bounds.py::test_small_files_may_expand_as_far_as_they_like",
    "LINE_BYTES": "test_framing.py::test_a_line_above_the_limit_is_passed_over",
    "LINE_CELLS": "test_portions.py::test_a_line_of_too_many_values_is_passed_over",
    "CHUNK_CELLS": "test_portions.py::test_chunks_of_many_rows_are_cut",
    "RECORDS_LEVELS": "test_json_documents.py::test_a_path_of_records_is_checked",
    "CSV_RECORD_BYTES": "test_csv.py::test_a_record_above_the_limit_is_refused_by_its_first_line",
    "CSV_HEADER_BYTES": "test_csv.py::test_a_header_that_is_too_long_fails_the_file",
    "CSV_REREAD_BYTES": "test_csv.py::test_quotes_that_are_never_closed_cost_a_limited_time",
    "XML_RECORD_BYTES": "test_xml_framing.py::test_a_record_above_the_limit_is_refused",
    "XML_TOKEN_BYTES": "test_xml_framing.py::test_a_long_token_is_refused",
    "XML_LEVELS": "test_xml_framing.py::test_deep_elements_are_refused",
    "XML_ATTRIBUTES": "test_xml.py::test_too_many_attributes_make_a_bad_record",
    "XML_ELEMENTS": "test_xml_framing.py::test_a_record_of_too_many_elements_is_refused",
    "XML_REREAD_BYTES": (
        "test_xml_framing.py::test_records_that_are_never_closed_cost_a_limited_time"
    ),
    "XML_BROKEN_TAGS": "test_xml_framing.py::test_hostile_files_cost_bounded_memory_and_time",
    "PARSER_DEATHS": "test_isolate.py::test_file_fails_after_too_many_parser_deaths",
    "DIRECTORIES": "test_task_bounds.py::test_only_a_file_with_too_many_directories_is_quarantined",
    "COMPONENT_BYTES": "test_partition.py::test_a_value_that_no_directory_can_have_names_its_rows",
    "AVRO_SCHEMA_BYTES": "test_avro.py::test_a_schema_beyond_a_limit_is_refused",
    "AVRO_LEVELS": "test_avro.py::test_a_schema_beyond_a_limit_is_refused",
    "AVRO_COLUMNS": "test_avro.py::test_a_schema_beyond_a_limit_is_refused",
    "AVRO_COMPARISONS": "test_avro_resolution.py::test_comparing_schemas_takes_limited_time",
    "AVRO_BLOCK_BYTES": "test_avro.py::test_a_block_is_unpacked_up_to_a_limit",
    "AVRO_RECORD_VALUES": "test_avro.py::test_a_record_of_too_many_values_is_bad",
    "WHOLE_FILE_BYTES": (
        "test_text_and_binary.py::test_a_file_above_the_limit_of_a_row_is_quarantined"
    ),
    "ZIP_MEMBERS": "test_zip.py::test_an_archive_above_a_limit_is_quarantined",
    "ZIP_DIRECTORY_BYTES": "test_zip.py::test_an_archive_above_a_limit_is_quarantined",
    "ZIP_NAME_BYTES": "test_zip.py::test_an_archive_above_a_limit_is_quarantined",
    "EXCEL_CELLS": "test_excel_bounds.py::test_too_many_cells_fail_the_file",
    "EXCEL_ROW_BYTES": "test_excel_bounds.py::test_a_row_that_is_too_long_is_a_bad_record",
    "EXCEL_TEXT_BYTES": "test_excel_bounds.py::test_shared_texts_are_limited",
    "EXCEL_PART_BYTES": "test_excel_bounds.py::test_other_parts_are_limited",
    "EXCEL_LEVELS": "test_excel_bounds.py::test_odd_xml_is_refused",
    "EXCEL_TAG_BYTES": "test_excel_bounds.py::test_odd_xml_is_refused",
    "EXCEL_NAMES": "test_excel_bounds.py::test_odd_xml_is_refused",
    "LETTERS": "test_task_bounds.py::test_letters_of_a_file_are_bounded_and_the_rest_is_counted",
    "LETTERS_BYTES": "test_task_bounds.py::test_letters_of_long_lines_are_bounded_by_their_bytes",
    "RAW_BYTES": "test_bad_records.py::test_a_line_above_the_limit_is_only_a_bad_record",
    "ROW_BYTES": "test_query_source.py::test_bad_rows_become_dead_letters_with_row_and_query",
    "REASON_CHARACTERS": "test_task_bounds.py::test_reasons_are_cut",
    "LETTER_BYTES": "test_replayed_files.py::test_a_letter_that_is_none_is_refused_and_stays",
    "LETTER_COLUMNS": (
        "test_letter_files.py::test_a_header_that_somebody_broke_costs_only_its_letters"
    ),
    "EXPLAINED_BYTES": "test_file_content.py::test_a_file_is_read_up_to_the_limit",
    "INFERRED_COLUMNS": "test_inference.py::test_excess_columns_are_left_out_with_a_reason",
    "INFERRED_VALUES": "test_inference.py::test_objects_beyond_what_a_row_may_hold_are_json",
    "NAME_BYTES": "test_inference.py::test_names_that_are_too_long_are_left_out",
    "INFERRED_LEVELS": "test_inference.py::test_deep_nesting_becomes_json",
    "STRUCT_FIELDS": "test_inference.py::test_values_have_the_narrowest_type_that_keeps_them",
    "UNEXPECTED_FIELDS": (
        "test_new_fields.py::test_unexpected_names_are_limited_in_number_and_length"
    ),
    "UNEXPECTED_VALUES_BYTES": "test_new_fields.py::test_unexpected_values_are_limited_in_bytes",
    "CONFIG_BYTES": "test_yaml_file.py::test_a_large_file_is_not_read",
    "CONFIG_VALUES": "test_yaml_file.py::test_aliases_that_grow_are_refused",
    "CONFIG_NUMBER": (
        "test_yaml_file.py::test_a_number_of_many_digits_is_refused_before_it_is_counted"
    ),
    "ANSWER_BYTES": "test_faults.py::test_an_answer_above_its_limit_fails_packed_or_not",
    "ANSWER_VALUES": "test_answer_text.py::test_too_many_values_are_refused_before_they_are_cut",
    "REQUEST_RANGES": "test_request_windows.py::test_too_many_ranges_are_refused",
    "CSV_COLUMNS": "test_text_files.py::test_a_header_of_too_many_columns_is_refused_at_once",
    "TABLE_ROW_BYTES": "test_hostile_parquet.py::test_a_row_that_is_too_large_is_refused",
    "TABLE_READER_BYTES": "test_hostile_parquet.py::test_small_files_cost_bounded_memory",
    "TABLE_READER_PER_BYTE": (
        "test_hostile_parquet.py::test_a_valid_file_with_row_group_sized_pages_is_read"
    ),
    "TABLE_READER_MOST_BYTES": (
        "test_hostile_parquet.py::test_the_memory_limit_follows_the_size_of_the_file"
    ),
    "COPIED_ENTRY_BYTES": "test_row_group_copies.py::test_a_broken_condition_decodes",
    "TABLE_FOOTER_BYTES": "test_hostile_parquet.py::test_a_long_footer_is_not_read",
    "TABLE_FOOTER_TRUSTED_BYTES": (
        "test_hostile_parquet.py::test_a_hostile_footer_costs_only_its_file"
    ),
    "TABLE_FOOTER_MEMORY_BYTES": (
        "test_hostile_parquet.py::test_a_hostile_footer_costs_only_its_file"
    ),
    "TABLE_FOOTER_PER_BYTE": "test_hostile_parquet.py::test_the_footer_of_a_wide_file_is_read",
    "REQUEST_BYTES": "test_request_document.py::test_a_large_request_is_refused",
    "REQUEST_CHARACTERS": "test_request_document.py::test_long_texts_are_refused",
    "REQUEST_FILES": "test_request_document.py::test_too_many_of_a_kind_are_refused",
    "REQUEST_LETTERS": "test_request_document.py::test_too_many_of_a_kind_are_refused",
    "REQUEST_UNITS": "test_request_document.py::test_too_many_of_a_kind_are_refused",
    "REQUEST_CHUNKS": "test_value_ranges.py::test_a_range_that_would_double_rows_is_rejected",
    "MESSAGE_BYTES": "test_messages.py::test_content_beyond_limits_is_unreadable",
    "MESSAGE_OBJECTS": "test_messages.py::test_content_beyond_limits_is_unreadable",
    "MESSAGE_ENVELOPES": "test_messages.py::test_content_beyond_limits_is_unreadable",
    "MESSAGE_KEY_CHARACTERS": "test_messages.py::test_content_beyond_limits_is_unreadable",
    "OPEN_HINTS": "test_receiver.py::test_full_inbox_stops_receiving",
    "WEBHOOK_MESSAGES": "test_webhook.py::test_full_webhook_answers_503",
    "FOREIGN_MESSAGES": "test_receiver.py::test_flood_of_foreign_messages_lets_sources_poll",
    "OLD_MESSAGES": "test_receiver.py::test_sources_poll_while_old_messages_are_read",
    "HINTED_PARTITIONS": "test_hint_schedule.py::test_many_untracked_partitions_make_one_scan",
    "HINTED_FILES": "test_hint_pacing.py::test_many_hinted_files_are_divided",
    "PAGE_KEYS": "test_storage.py::test_a_listing_over_many_pages_is_complete",
    "FIRST_PAGE_KEYS": "test_storage.py::test_a_stopped_listing_costs_one_small_page",
    "CACHED_NAMES": "test_folder_cache.py::test_memory_is_bounded",
    "SCAN_FILES": "test_costs.py::test_discovery_memory_is_bounded_by_the_scan",
    "IGNORED_NAMES": "test_file_names.py::test_ignored_names_are_bounded",
    "CONNECTIONS": "test_web.py::test_excess_connections_cut_off_the_longest_silent_one",
    "STORY_CHARACTERS": "test_page.py::test_a_question_is_bounded_in_length_and_in_who_asks",
    "STORY_REQUESTS": "test_source_page.py::test_questions_cost_no_more_requests_than_are_allowed",
    "SHOWN_STATE_BYTES": "test_peer_state.py::test_a_state_file_that_is_too_large_is_not_read",
    "SHOWN_BATCH_BYTES": (
        "test_source_page.py::test_damaged_batch_record_spoils_only_its_own_history_row"
    ),
    "SHOWN_COMMIT_BYTES": "test_commits.py::test_a_long_commit_is_summarized_by_its_beginning",
    "SHOWN_LETTER_BYTES": "test_source_page.py::test_letters_are_grouped_by_reason_within_bounds",
    "OTHER_PAGE_BYTES": "test_page.py::test_too_large_answers_of_penguin_are_refused",
    "FOOTER_BYTES": "test_file_contract.py::test_file_with_a_footer_of_a_gigabyte_is_rejected",
    "FOOTERS_DECODED_BYTES": "test_file_contract.py::test_long_footers_are_read_a_few_at_a_time",
    "FILE_COLUMNS": "test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns",
    "NEW_COLUMNS": "test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns",
    "FILE_LEVELS": "test_file_contract.py::test_a_schema_too_deep_for_delta_rs_is_refused",
    "FOOTER_LEVELS": "test_footers.py::test_no_footer_ends_the_process",
    "FOOTER_ITEMS": "test_footers.py::test_no_footer_ends_the_process",
    "GROUP_ROWS": "test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed",
    "ROWS_PER_BYTE": "test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed",
    "OUTPUT_ID_BYTES": "test_footers.py::test_an_output_id_that_is_none_is_refused",
    "QUARANTINE_BYTES": "test_quarantine.py::test_the_short_object_moves_when_it_has_grown",
}


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One line of the page: ``of`` what, what happens ``beyond`` it, the test that shows it."""

    area: str
    name: str
    value: int
    of: str
    beyond: str
    test: str
    key: str


def named_limits() -> Iterator[LimitLine]:
    """Yield each constant with the text below it. Raises `ValueError` without a text."""
    source = inspect.getsource(limits)
    lines = source.splitlines()
    for constant, text in pairwise(ast.parse(source).body):
        if not isinstance(constant, ast.Assign):
            continue
        (name,) = (target.id for target in constant.targets if isinstance(target, ast.Name))
        above = [line for line in lines[: constant.lineno] if line.startswith(_SECTION)]
        below = isinstance(text, ast.Expr) and ast.literal_eval(text.value)
        found = _TEXT.fullmatch(" ".join(str(below).split()))
        if found is None:
            raise ValueError(f"no text below {name} says what it bounds and what is beyond")
        yield LimitLine(
            above[-1].strip("# -"),
            name,
            getattr(limits, name),
            found["of"],
            found["beyond"],
            TESTS[name],
            found["key"] or "",
        )


def limits_reference() -> str:
    """Return the whole document."""
    parts = [_HEAD]
    for area, group in groupby(named_limits(), lambda bound: bound.area):
        parts.append(f"\n## {area}\n")
        parts.append("| limit | | beyond it |\n|---|---|---|")
        parts += map(_row, group)
    return "\n".join(parts) + "\n"


def _row(bound: LimitLine) -> str:
    key = f"; key `{bound.key}`" if bound.key else ""
    return f"| {bound.of} | {_amount(bound)} | {bound.beyond}{key} |"


def _amount(bound: LimitLine) -> str:
    if not bound.name.endswith("_BYTES"):
        return f"{bound.value:,}"
    if bound.value < _KIB:
        return f"{bound.value:,} bytes"
    if bound.value % _MIB == 0:
        return f"{bound.value // _MIB:,} MiB"
    return f"{bound.value // _KIB:,} KiB"
