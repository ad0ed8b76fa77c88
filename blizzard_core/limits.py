"""Limits of foreign input: files, responses, connections, requests.

The sender decides how much data arrives; these constants limit how much this process accepts. All
limits of the code are here. Input beyond a limit is refused with a reason and does not affect other
input. A limit that an operator may need to change has a configuration key, whose default it is.

`docs/reference/limits.md` is made of the sections and of the text below each constant: the limited
thing, the effect beyond it, its key, and its test (`blizzard_core.settings.limits_page`).
"""

# --- Source files ----------------------------------------------------------------------------

EXPANSION = 256
"""Unpacked bytes of a file for each stored byte. An empty value of a row counts as a quarter of a
byte. Beyond: the file is quarantined, stage `decompress`. Key:
pipelines.NAME.error_handling.advanced.max_expansion Test:
test_task_bounds.py::test_excessive_expansion_quarantines_only_that_file"""
EXPANSION_FREE_BYTES = 16 << 20
"""Unpacked bytes that any file may have. Beyond: the expansion counts. Test:
test_task_bounds.py::test_small_files_may_expand_as_far_as_they_like"""
LINE_BYTES = 64 << 20
"""A line. Beyond: a bad record, never held in memory. Test:
test_framing.py::test_a_line_above_the_limit_is_passed_over"""
LINE_CELLS = 16 << 20
"""Values of a line: columns, and those of each object in a list or map of objects. Beyond: a bad
record. Test: test_portions.py::test_a_line_of_too_many_values_is_passed_over"""
CHUNK_CELLS = 2 << 20
"""Rows times columns that are parsed at once. A row counts as at least 16 columns, a column of raw
JSON as 8. Beyond: the rest follows. Test: test_portions.py::test_chunks_of_many_rows_are_cut"""
RECORDS_LEVELS = 16
"""Names in the path to the records of a JSON document. Beyond: the configuration is refused. Test:
test_json_documents.py::test_a_path_of_records_is_checked"""
CSV_RECORD_BYTES = 16 << 20
"""A CSV record. Beyond: its first line is a bad record, and reading goes on behind it. Test:
test_csv.py::test_a_record_above_the_limit_is_refused_by_its_first_line"""
CSV_HEADER_BYTES = 512 << 10
"""The header of a CSV file, which each letter of the file repeats. Beyond: the file is quarantined,
stage `parse`. Test: test_csv.py::test_a_header_that_is_too_long_fails_the_file"""
CSV_REREAD_BYTES = 64 << 20
"""Bytes of a CSV file that are read again behind quotes that are never closed, besides four times
what was read before. Beyond: the file is quarantined, stage `parse`. Test:
test_csv.py::test_quotes_that_are_never_closed_cost_a_limited_time"""
XML_RECORD_BYTES = 16 << 20
"""An XML record. Beyond: a bad record. Test:
test_xml_framing.py::test_a_record_above_the_limit_is_refused"""
XML_TOKEN_BYTES = 1 << 20
"""A tag, a comment or an instruction within an XML record; a tag or a DTD outside. Beyond: a bad
record; outside the file is quarantined, stage `parse`. Test:
test_xml_framing.py::test_a_long_token_is_refused"""
XML_LEVELS = 64
"""Levels of elements in an XML record, and outside. Beyond: a bad record; outside the file is
quarantined, stage `parse`. Test: test_xml_framing.py::test_deep_elements_are_refused"""
XML_ATTRIBUTES = 1000
"""Attributes of an element in an XML record. Beyond: a bad record. Test:
test_xml.py::test_too_many_attributes_make_a_bad_record"""
XML_ELEMENTS = 256 << 10
"""Elements of an XML record above 1 MiB. Beyond: a bad record. Test:
test_xml_framing.py::test_a_record_of_too_many_elements_is_refused"""
XML_REREAD_BYTES = 32 << 20
"""Bytes of an XML file that are read again behind records that are never closed, besides twice what
was read before. Beyond: the file is quarantined, stage `parse`. Test:
test_xml_framing.py::test_records_that_are_never_closed_cost_a_limited_time"""
XML_BROKEN_TAGS = 100_000
"""Places in an XML file, outside of records, that begin like a tag and are none. Beyond: the file
is quarantined, stage `parse`. Test:
test_xml_framing.py::test_hostile_files_cost_bounded_memory_and_time"""
PARSER_DEATHS = 500
"""Processes that die of a file's lines. Beyond: the file is quarantined, stage `parse`. Test:
test_isolate.py::test_file_fails_after_too_many_parser_deaths"""
DIRECTORIES = 1000
"""Table directories for a file's rows. Beyond: the file is quarantined, stage `partition`. Key:
pipelines.NAME.error_handling.advanced.max_directories_per_file Test:
test_task_bounds.py::test_only_a_file_with_too_many_directories_is_quarantined"""
COMPONENT_BYTES = 255
"""A directory name made of a value. Beyond: a bad record, stage `partition`. Test:
test_partition.py::test_a_value_that_no_directory_can_have_names_its_rows"""
AVRO_SCHEMA_BYTES = 1 << 20
"""The schema of an Avro file. Beyond: the file is quarantined. Test:
test_avro.py::test_a_schema_beyond_a_limit_is_refused"""
AVRO_LEVELS = 24
"""Levels of it. Beyond: the same. Test: test_avro.py::test_a_schema_beyond_a_limit_is_refused"""
AVRO_COLUMNS = 10_000
"""Types in it. Beyond: the same. Test: test_avro.py::test_a_schema_beyond_a_limit_is_refused"""
AVRO_COMPARISONS = 100_000
"""Its types compared with those of `avro_schema`. Beyond: the same. Test:
test_avro_resolution.py::test_comparing_schemas_takes_limited_time"""
AVRO_BLOCK_BYTES = 64 << 20
"""An Avro block, unpacked. Beyond: the same. Test:
test_avro.py::test_a_block_is_unpacked_up_to_a_limit"""
AVRO_RECORD_VALUES = 2 << 20
"""Values of an Avro record. Beyond: a bad record. Test:
test_avro.py::test_a_record_of_too_many_values_is_bad"""
WHOLE_FILE_BYTES = 64 << 20
"""A file that is one row: `binary`, and `text` with `whole_text`. Beyond: the file is quarantined,
stage `parse`. Test: test_text_and_binary.py::test_a_file_above_the_limit_of_a_row_is_quarantined"""
ZIP_MEMBERS = 10_000
"""Members of a zip archive. Beyond: the file is quarantined, stage `decompress`. Test:
test_zip.py::test_an_archive_above_a_limit_is_quarantined"""
ZIP_DIRECTORY_BYTES = 16 << 20
"""Its directory. Beyond: the same. Test:
test_zip.py::test_an_archive_above_a_limit_is_quarantined"""
ZIP_NAME_BYTES = 1024
"""A member's name in it. Beyond: the same. Test:
test_zip.py::test_an_archive_above_a_limit_is_quarantined"""
EXCEL_CELLS = 20_000_000
"""Cells of an Excel sheet, with empty ones; shared texts of a workbook. Beyond: the file is
quarantined, stage `parse`. Test: test_excel_bounds.py::test_too_many_cells_fail_the_file"""
EXCEL_ROW_BYTES = 16 << 20
"""Characters of a row in a sheet. Beyond: a bad record; a header: the file is quarantined. Test:
test_excel_bounds.py::test_a_row_that_is_too_long_is_a_bad_record"""
EXCEL_TEXT_BYTES = 128 << 20
"""All shared texts of a workbook. Beyond: the file is quarantined. Test:
test_excel_bounds.py::test_shared_texts_are_limited"""
EXCEL_PART_BYTES = 32 << 20
"""A part of a workbook beside sheets and texts, unpacked. Beyond: the same. Test:
test_excel_bounds.py::test_other_parts_are_limited"""
EXCEL_LEVELS = 64
"""Levels of elements in a part. Beyond: the same. Test:
test_excel_bounds.py::test_odd_xml_is_refused"""
EXCEL_TAG_BYTES = 1 << 20
"""A tag in a part. Beyond: the same. Test: test_excel_bounds.py::test_odd_xml_is_refused"""
EXCEL_NAMES = 20_000
"""Names of elements and attributes in a part. Beyond: the same. Test:
test_excel_bounds.py::test_odd_xml_is_refused"""

# --- Dead letters ----------------------------------------------------------------------------

LETTERS = 100_000
"""Letters of a file's bad records; of its rows out of time in each task. Beyond: the rest is
counted: in the last letter, `bad_rows` and the file's error. A file that exceeds `max_bad_fraction`
up to there is quarantined without reading on. Test:
test_task_bounds.py::test_letters_of_a_file_are_bounded_and_the_rest_is_counted"""
LETTERS_BYTES = 64 << 20
"""All letters of a file's bad records. Beyond: the same. Test:
test_task_bounds.py::test_letters_of_long_lines_are_bounded_by_their_bytes"""
RAW_BYTES = 64 << 10
"""A line in its letter. Beyond: `truncated`; a replay reads the file again. Test:
test_bad_records.py::test_a_line_above_the_limit_is_only_a_bad_record"""
ROW_BYTES = 512 << 10
"""A row of a table, an API, an Avro or Excel file in its letter. Beyond: `truncated`; a replay
refuses the row of a table or an API, and it alone. Test:
test_query_source.py::test_bad_rows_become_dead_letters_with_row_and_query"""
REASON_CHARACTERS = 500
"""The reason in a letter, in characters. Beyond: cut, with `…`. Test:
test_task_bounds.py::test_reasons_are_cut"""
LETTER_BYTES = 4 << 20
"""A letter that is read. Beyond: the replay refuses its object, naming the line. Test:
test_replayed_files.py::test_a_letter_that_is_none_is_refused_and_stays"""
LETTER_COLUMNS = 20_000
"""Columns in the header of a letter of a format with types, fields of structs counted. Beyond: the
header says so, and a replay refuses its letters. Test:
test_letter_files.py::test_a_header_that_somebody_broke_costs_only_its_letters"""

EXPLAINED_BYTES = 64 << 20
"""Bytes of a file that `blizzard explain` reads to find its first record, decompressed. Beyond:
`explain` says that there is none. Test:
test_file_content.py::test_a_file_is_read_up_to_the_limit"""

# --- Inferred schemas ------------------------------------------------------------------------

INFERRED_COLUMNS = 1000
"""Columns of a table. Beyond: left out, with a warning; declare what is wanted. Test:
test_inference.py::test_excess_columns_are_left_out_with_a_reason"""
INFERRED_VALUES = 4000
"""Values of a row, fields of objects counted. Beyond: objects behind them are `json`. Test:
test_inference.py::test_objects_beyond_what_a_row_may_hold_are_json"""
NAME_BYTES = 255
"""The name of a column or field. Beyond: left out; an object with such a name is `json`. Test:
test_inference.py::test_names_that_are_too_long_are_left_out"""
# One level below the limit of a committed column, because the last level holds the values.
INFERRED_LEVELS = 23
"""Levels of objects and arrays. Beyond: `json`. Test:
test_inference.py::test_deep_nesting_becomes_json"""
STRUCT_FIELDS = 256
"""Names of an object. Beyond: `json`. Test:
test_inference.py::test_values_have_the_narrowest_type_that_keeps_them"""
UNEXPECTED_FIELDS = 100
"""Fields without a column that are reported for a source, and that become columns at once. Beyond:
not reported; a batch looks again for the rest, ten times. Test:
test_new_fields.py::test_unexpected_names_are_limited_in_number_and_length"""
UNEXPECTED_VALUES_BYTES = 256 << 10
"""Values of new fields that a task reports to decide their types. Beyond: later values do not count
for the type. Test: test_new_fields.py::test_unexpected_values_are_limited_in_bytes"""

# --- Configurations --------------------------------------------------------------------------

CONFIG_BYTES = 4 << 20
"""A file. Beyond: refused. Test: test_yaml_file.py::test_a_large_file_is_not_read"""
CONFIG_VALUES = 250_000
"""Values of a file, aliases counted. Beyond: refused. Test:
test_yaml_file.py::test_aliases_that_grow_are_refused"""
CONFIG_NUMBER = 400
"""Characters of a number. Beyond: refused. Test:
test_yaml_file.py::test_a_number_of_many_digits_is_refused_before_it_is_counted"""

# --- Tables and APIs -------------------------------------------------------------------------

ANSWER_BYTES = 64 << 20
"""An answer of an API, unpacked. Beyond: the window fails and is asked for again; ask for smaller
pages. Test: test_faults.py::test_an_answer_above_its_limit_fails_packed_or_not"""
ANSWER_VALUES = 8 << 20
"""Values of an answer. Beyond: the window fails and is asked for again; ask for smaller pages.
Test: test_answer_text.py::test_too_many_values_are_refused_before_they_are_cut"""
REQUEST_RANGES = 10_000
"""Requests for a window of an API. Beyond: the source stops with the remedy: a longer range for
each. Test: test_request_windows.py::test_too_many_ranges_are_refused"""
CSV_COLUMNS = 10_000
"""Columns of a CSV file. Beyond: the file is quarantined; of a table the source stops with the
file's name. Test: test_text_files.py::test_a_header_of_too_many_columns_is_refused_at_once"""
TABLE_ROW_BYTES = 64 << 20
"""A row of a Parquet file of a table. Beyond: the source stops with the names of file and column.
Test: test_hostile_parquet.py::test_a_row_that_is_too_large_is_refused"""
TABLE_READER_BYTES = 256 << 20
"""Memory to decode a Parquet file of a table, besides the 100 MB of any process and 64 MiB left by
earlier files. Beyond: the source stops with the names of file and column. Test:
test_hostile_parquet.py::test_small_files_cost_bounded_memory"""
TABLE_READER_PER_BYTE = 8
"""And for each byte of the file. Beyond: the same. Test:
test_hostile_parquet.py::test_a_valid_file_with_row_group_sized_pages_is_read"""
TABLE_READER_MOST_BYTES = 2 << 30
"""Both together. Beyond: the same. Test:
test_hostile_parquet.py::test_the_memory_limit_follows_the_size_of_the_file"""
COPIED_ENTRY_BYTES = 1 << 20
"""A row group's part of a Parquet footer, to be copied. Beyond: the row group is decoded. Test:
test_row_group_copies.py::test_a_broken_condition_decodes"""
TABLE_FOOTER_BYTES = 8 << 20
"""The footer of a Parquet file of a table. Beyond: the source stops with the file's name. Test:
test_hostile_parquet.py::test_a_long_footer_is_not_read"""
# Decoded, a footer takes five to ten times its bytes. A hostile one takes 700 times as much, if its
# lists are no longer than their bytes, which is looked at before.
TABLE_FOOTER_TRUSTED_BYTES = 64 << 10
"""A Parquet footer that is decoded at once; a longer one first in a process of limited memory.
Beyond: a quarter of a second, unless the process runs. Test:
test_hostile_parquet.py::test_a_hostile_footer_costs_only_its_file"""
TABLE_FOOTER_MEMORY_BYTES = 64 << 20
"""Memory of that process. Beyond: the file is refused. Test:
test_hostile_parquet.py::test_a_hostile_footer_costs_only_its_file"""
TABLE_FOOTER_PER_BYTE = 16
"""And for each byte of the footer. Beyond: the same. Test:
test_hostile_parquet.py::test_the_footer_of_a_wide_file_is_read"""

# --- Requests --------------------------------------------------------------------------------

REQUEST_BYTES = 1 << 20
"""A request of an operator. Beyond: the command refuses to send it, and the owner of the source
rejects it. Test: test_request_document.py::test_a_large_request_is_refused"""
REQUEST_CHARACTERS = 500
"""Characters of a text in a request: author, time, reason, release, fingerprint. Beyond: the
request is refused; texts of a cancellation are cut. Test:
test_request_document.py::test_long_texts_are_refused"""
REQUEST_FILES = 10_000
"""Files that a request names. Beyond: the request is refused; name fewer at once. Test:
test_request_document.py::test_too_many_files_are_refused"""
REQUEST_LETTERS = 20_000
"""Objects of dead letters that a request names. Beyond: the request is refused; name fewer at once.
Test: test_request_document.py::test_too_many_letters_are_refused"""
REQUEST_UNITS = 20_000
"""Work units of a request that marks them. Beyond: the request is refused; mark fewer at once.
Test: test_request_document.py::test_too_many_units_are_refused"""
REQUEST_CHUNKS = 10_000
"""Chunks of a range of values that a request reads. Beyond: the request is rejected; give a longer
--chunk. Test: test_value_ranges.py::test_a_range_that_would_double_rows_is_rejected"""

# --- Notifications ---------------------------------------------------------------------------

MESSAGE_BYTES = 1 << 20
"""A message. Beyond: it is no hint, and counted as unreadable. Test:
test_messages.py::test_content_beyond_limits_is_unreadable"""
MESSAGE_OBJECTS = 1000
"""Objects that a message names. Beyond: as above. Test:
test_messages.py::test_content_beyond_limits_is_unreadable"""
MESSAGE_ENVELOPES = 3
"""Envelopes of a message, one in the other. Beyond: as above. Test:
test_messages.py::test_content_beyond_limits_is_unreadable"""
MESSAGE_KEY_CHARACTERS = 4096
"""Characters of a name in a message. Beyond: as above. Test:
test_messages.py::test_content_beyond_limits_is_unreadable"""
OPEN_HINTS = 10_000
"""Hints of a source that no save or scan has acknowledged. Beyond: its messages stay in the queue
until some are; other sources go on. Test: test_receiver.py::test_full_inbox_stops_receiving"""
WEBHOOK_MESSAGES = 1000
"""Messages by `POST /notify` that wait. Beyond: the sender gets 503. Test:
test_webhook.py::test_full_webhook_answers_503"""
FOREIGN_MESSAGES = 1000
"""Messages of an hour, 9 of 10, that name objects of no source. Beyond: the sources poll until the
hour is over. Test: test_receiver.py::test_flood_of_foreign_messages_lets_sources_poll"""
OLD_MESSAGES = 1000
"""Messages, 9 of 10, that were sent more than ten minutes before they are received. Beyond: the
sources poll until newer ones come. Test:
test_receiver.py::test_sources_poll_while_old_messages_are_read"""
HINTED_PARTITIONS = 100
"""Partitions that a scan of hinted ones lists without tracking them. Beyond: a scan of everything,
at most one each `poll_interval`. Test:
test_hint_schedule.py::test_many_untracked_partitions_make_one_scan"""
HINTED_FILES = 1000
"""Files that a scan asks for by name, without a watermark. Beyond: the next scan asks for the
others. Test: test_hint_pacing.py::test_many_hinted_files_are_divided"""

# --- Listings and the status page ------------------------------------------------------------

PAGE_KEYS = 1000
"""Names in a page of a listing (Azure: 5,000). Beyond: the next page. Test:
test_storage.py::test_a_listing_over_many_pages_is_complete"""
FIRST_PAGE_KEYS = 100
"""Names in the first page. Beyond: the next page. Test:
test_storage.py::test_a_stopped_listing_costs_one_small_page"""
CACHED_NAMES = 50_000
"""Names in directories of a local disk that are held between polls, of each place; about 7 MB. A
directory counts as four. Beyond: the directories that were not asked for longest are read again.
Test: test_folder_cache.py::test_memory_is_bounded"""
SCAN_FILES = 50_000
"""New files that a scan holds. Beyond: the rest comes with the next scan. Test:
test_costs.py::test_discovery_memory_is_bounded_by_the_scan"""
IGNORED_NAMES = 10_000
"""Names that a scan keeps of the files that it does not take. Beyond: not counted. Test:
test_file_names.py::test_ignored_names_are_bounded"""
CONNECTIONS = 64
"""Connections to the status page. Beyond: the longest idle one is cut off. Test:
test_web.py::test_excess_connections_cut_off_the_longest_silent_one"""
STORY_CHARACTERS = 2048
"""Characters of a URI in a question to the page. Beyond: the question is refused. Test:
test_page.py::test_a_question_is_bounded_in_length_and_in_who_asks"""
STORY_REQUESTS = 3000
"""Requests to stores for questions to the page at once; 10 a second come back. Beyond: the question
is refused, with the command for a terminal. Test:
test_source_page.py::test_questions_cost_no_more_requests_than_are_allowed"""
SHOWN_STATE_BYTES = 8 << 20
"""A state file of the other daemon on the page. Beyond: only its age is shown. Test:
test_peer_state.py::test_a_state_file_that_is_too_large_is_not_read"""
SHOWN_BATCH_BYTES = 16 << 20
"""An object of the journal on the page. Beyond: only its age and size are shown. Test:
test_source_page.py::test_damaged_batch_record_spoils_only_its_own_history_row"""
SHOWN_COMMIT_BYTES = 2 << 20
"""A commit on the page. Beyond: only its beginning is shown, with a + behind the numbers. Test:
test_commits.py::test_a_long_commit_is_summarized_by_its_beginning"""
SHOWN_LETTER_BYTES = 4 << 20
"""An object of dead letters on the page. Beyond: only its size is shown. Test:
test_source_page.py::test_letters_are_grouped_by_reason_within_bounds"""
OTHER_PAGE_BYTES = 32 << 20
"""An answer of Penguin on the page of `blizzard up`. Beyond: the page says so. Test:
test_page.py::test_too_large_answers_of_penguin_are_refused"""

# --- Parquet files that Penguin commits ------------------------------------------------------

# About 20,000 column chunks: 200 columns in 100 row groups. A hostile footer takes thirty times as
# much memory when it is decoded.
FOOTER_BYTES = 4 << 20
"""A footer. Beyond: the file is quarantined. Test:
test_file_contract.py::test_file_with_a_footer_of_a_gigabyte_is_rejected"""
FOOTERS_DECODED_BYTES = 96 << 20
"""Footers of a batch, decoded. Beyond: the other files wait for the next batch. Test:
test_file_contract.py::test_long_footers_are_read_a_few_at_a_time"""
FILE_COLUMNS = 10_000
"""Columns of a file. Beyond: the file is quarantined. Test:
test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns"""
NEW_COLUMNS = 1000
"""Columns that a commit adds to the table. Beyond: the file is quarantined. Key:
tables.NAME.advanced.max_new_columns Test:
test_file_contract.py::test_a_small_file_cannot_bring_thousands_of_columns"""
# delta-rs parses the schema again with a JSON parser that fails at 128 levels. A struct takes three
# of them.
FILE_LEVELS = 24
"""Levels of a column. Beyond: the file is quarantined. Test:
test_file_contract.py::test_a_schema_too_deep_for_delta_rs_is_refused"""
FOOTER_LEVELS = 64
"""Levels of the footer itself. Beyond: the file is quarantined. Test:
test_footers.py::test_no_footer_ends_the_process"""
FOOTER_ITEMS = 1_000_000
"""Items of a list, and bytes of a text, in a footer. Beyond: the file is quarantined. Test:
test_footers.py::test_no_footer_ends_the_process"""
GROUP_ROWS = (1 << 31) - 1
"""Rows of a row group. Beyond: the file is quarantined. Test:
test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed"""
ROWS_PER_BYTE = 1 << 16
"""Rows for each byte of a file. Beyond: the file is quarantined. Test:
test_file_contract.py::test_a_row_count_that_cannot_be_is_not_committed"""
OUTPUT_ID_BYTES = 1024
"""An output id. Beyond: the file is quarantined. Test:
test_footers.py::test_an_output_id_that_is_none_is_refused"""
QUARANTINE_BYTES = 1 << 19
"""The short object of the quarantine. Beyond: its lines move to another object. Test:
test_quarantine.py::test_the_short_object_moves_when_it_has_grown"""
