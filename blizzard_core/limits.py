"""Limits of foreign input: files, responses, connections, requests.

The sender decides how much data arrives; these constants limit how much this process accepts. All
limits of the code are here. Input beyond a limit is refused with a reason and does not affect other
input. A limit that an operator may need to change has a configuration key, whose default it is.

`docs/reference/limits.md` is made of the sections and of the text below each constant: the limited
thing, the effect beyond it, and its key. `tests.repository.limits_reference` names its test.
"""

# --- Source files ----------------------------------------------------------------------------

EXPANSION = 256
"""Unpacked bytes of a file for each stored byte. An empty value of a row counts as a quarter of a
byte. Beyond: the file is quarantined, stage `decompress`. Key:
pipelines.NAME.error_handling.advanced.max_expansion"""
EXPANSION_FREE_BYTES = 16 << 20
"""Unpacked bytes that any file may have. Beyond: the expansion counts."""
LINE_BYTES = 64 << 20
"""A line. Beyond: a bad record, never held in memory."""
LINE_CELLS = 16 << 20
"""Values of a line: columns, and those of each object in a list or map of objects. Beyond: a bad
record."""
CHUNK_CELLS = 2 << 20
"""Rows times columns that are parsed at once. A row counts as at least 16 columns, a column of raw
JSON as 8. Beyond: the rest follows."""
RECORDS_LEVELS = 16
"""Names in the path to the records of a JSON document. Beyond: the configuration is refused."""
CSV_RECORD_BYTES = 16 << 20
"""A CSV record. Beyond: its first line is a bad record, and reading goes on behind it."""
CSV_HEADER_BYTES = 512 << 10
"""The header of a CSV file, which each letter of the file repeats. Beyond: the file is quarantined,
stage `parse`."""
CSV_REREAD_BYTES = 64 << 20
"""Bytes of a CSV file that are read again behind quotes that are never closed, besides four times
what was read before. Beyond: the file is quarantined, stage `parse`."""
XML_RECORD_BYTES = 16 << 20
"""An XML record. Beyond: a bad record."""
XML_TOKEN_BYTES = 1 << 20
"""A tag, a comment or an instruction within an XML record; a tag or a DTD outside. Beyond: a bad
record; outside the file is quarantined, stage `parse`."""
XML_LEVELS = 64
"""Levels of elements in an XML record, and outside. Beyond: a bad record; outside the file is
quarantined, stage `parse`."""
XML_ATTRIBUTES = 1000
"""Attributes of an element in an XML record. Beyond: a bad record."""
XML_ELEMENTS = 256 << 10
"""Elements of an XML record above 1 MiB. Beyond: a bad record."""
XML_REREAD_BYTES = 32 << 20
"""Bytes of an XML file that are read again behind records that are never closed, besides twice what
was read before. Beyond: the file is quarantined, stage `parse`."""
XML_BROKEN_TAGS = 100_000
"""Places in an XML file, outside of records, that begin like a tag and are none. Beyond: the file
is quarantined, stage `parse`."""
PARSER_DEATHS = 500
"""Processes that die of a file's lines. Beyond: the file is quarantined, stage `parse`."""
DIRECTORIES = 1000
"""Table directories for a file's rows. Beyond: the file is quarantined, stage `partition`. Key:
pipelines.NAME.error_handling.advanced.max_directories_per_file"""
COMPONENT_BYTES = 255
"""A directory name made of a value. Beyond: a bad record, stage `partition`."""
AVRO_SCHEMA_BYTES = 1 << 20
"""The schema of an Avro file. Beyond: the file is quarantined."""
AVRO_LEVELS = 24
"""Levels of it. Beyond: the same."""
AVRO_COLUMNS = 10_000
"""Types in it. Beyond: the same."""
AVRO_COMPARISONS = 100_000
"""Its types compared with those of `avro_schema`. Beyond: the same."""
AVRO_BLOCK_BYTES = 64 << 20
"""An Avro block, unpacked. Beyond: the same."""
AVRO_RECORD_VALUES = 2 << 20
"""Values of an Avro record. Beyond: a bad record."""
WHOLE_FILE_BYTES = 64 << 20
"""A file that is one row: `binary`, and `text` with `whole_text`. Beyond: the file is quarantined,
stage `parse`."""
ZIP_MEMBERS = 10_000
"""Members of a zip archive. Beyond: the file is quarantined, stage `decompress`."""
ZIP_DIRECTORY_BYTES = 16 << 20
"""Its directory. Beyond: the same."""
ZIP_NAME_BYTES = 1024
"""A member's name in it. Beyond: the same."""
EXCEL_CELLS = 20_000_000
"""Cells of an Excel sheet, with empty ones; shared texts of a workbook. Beyond: the file is
quarantined, stage `parse`."""
EXCEL_ROW_BYTES = 16 << 20
"""Characters of a row in a sheet. Beyond: a bad record; a header: the file is quarantined."""
EXCEL_TEXT_BYTES = 128 << 20
"""All shared texts of a workbook. Beyond: the file is quarantined."""
EXCEL_PART_BYTES = 32 << 20
"""A part of a workbook beside sheets and texts, unpacked. Beyond: the same."""
EXCEL_LEVELS = 64
"""Levels of elements in a part. Beyond: the same."""
EXCEL_TAG_BYTES = 1 << 20
"""A tag in a part. Beyond: the same."""
EXCEL_NAMES = 20_000
"""Names of elements and attributes in a part. Beyond: the same."""

# --- Dead letters ----------------------------------------------------------------------------

LETTERS = 100_000
"""Letters of a file's bad records; of its rows out of time in each task. Beyond: the rest is
counted: in the last letter, `bad_rows` and the file's error. A file that exceeds `max_bad_fraction`
up to there is quarantined without reading on."""
LETTERS_BYTES = 64 << 20
"""All letters of a file's bad records. Beyond: the same."""
RAW_BYTES = 64 << 10
"""A line in its letter. Beyond: `truncated`; a replay reads the file again."""
ROW_BYTES = 512 << 10
"""A row of a table, an API, an Avro or Excel file in its letter. Beyond: `truncated`; a replay
refuses the row of a table or an API, and it alone."""
REASON_CHARACTERS = 500
"""The reason in a letter, in characters. Beyond: cut, with `…`."""
LETTER_BYTES = 4 << 20
"""A letter that is read. Beyond: the replay refuses its object, naming the line."""
LETTER_COLUMNS = 20_000
"""Columns in the header of a letter of a format with types, fields of structs counted. Beyond: the
header says so, and a replay refuses its letters."""

EXPLAINED_BYTES = 64 << 20
"""Bytes of a file that `blizzard explain` reads to find its first record, decompressed. Beyond:
`explain` says that there is none."""

# --- Inferred schemas ------------------------------------------------------------------------

INFERRED_COLUMNS = 1000
"""Columns of a table. Beyond: left out, with a warning; declare what is wanted."""
INFERRED_VALUES = 4000
"""Values of a row, fields of objects counted. Beyond: objects behind them are `json`."""
NAME_BYTES = 255
"""The name of a column or field. Beyond: left out; an object with such a name is `json`."""
# One level below the limit of a committed column, because the last level holds the values.
INFERRED_LEVELS = 23
"""Levels of objects and arrays. Beyond: `json`."""
STRUCT_FIELDS = 256
"""Names of an object. Beyond: `json`."""
UNEXPECTED_FIELDS = 100
"""Fields without a column that are reported for a source, and that become columns at once. Beyond:
not reported; a batch looks again for the rest, ten times."""
UNEXPECTED_VALUES_BYTES = 256 << 10
"""Values of new fields that a task reports to decide their types. Beyond: later values do not count
for the type."""

# --- Configurations --------------------------------------------------------------------------

CONFIG_BYTES = 4 << 20
"""A file. Beyond: refused."""
CONFIG_VALUES = 250_000
"""Values of a file, aliases counted. Beyond: refused."""
CONFIG_NUMBER = 400
"""Characters of a number. Beyond: refused."""

# --- Tables and APIs -------------------------------------------------------------------------

ANSWER_BYTES = 64 << 20
"""An answer of an API, unpacked. Beyond: the window fails and is asked for again; ask for smaller
pages."""
ANSWER_VALUES = 8 << 20
"""Values of an answer. Beyond: the window fails and is asked for again; ask for smaller pages."""
REQUEST_RANGES = 10_000
"""Requests for a window of an API. Beyond: the source stops with the remedy: a longer range for
each."""
CSV_COLUMNS = 10_000
"""Columns of a CSV file. Beyond: the file is quarantined; of a table the source stops with the
file's name."""
TABLE_ROW_BYTES = 64 << 20
"""A row of a Parquet file of a table. Beyond: the source stops with the names of file and
column."""
TABLE_READER_BYTES = 256 << 20
"""Memory to decode a Parquet file of a table, besides the 100 MB of any process and 64 MiB left by
earlier files. Beyond: the source stops with the names of file and column."""
TABLE_READER_PER_BYTE = 8
"""And for each byte of the file. Beyond: the same."""
TABLE_READER_MOST_BYTES = 2 << 30
"""Both together. Beyond: the same."""
COPIED_ENTRY_BYTES = 1 << 20
"""A row group's part of a Parquet footer, to be copied. Beyond: the row group is decoded."""
TABLE_FOOTER_BYTES = 8 << 20
"""The footer of a Parquet file of a table. Beyond: the source stops with the file's name."""
# Decoded, a footer takes five to ten times its bytes. A hostile one takes 700 times as much, if its
# lists are no longer than their bytes, which is looked at before.
TABLE_FOOTER_TRUSTED_BYTES = 64 << 10
"""A Parquet footer that is decoded at once; a longer one first in a process of limited memory.
Beyond: a quarter of a second, unless the process runs."""
TABLE_FOOTER_MEMORY_BYTES = 64 << 20
"""Memory of that process. Beyond: the file is refused."""
TABLE_FOOTER_PER_BYTE = 16
"""And for each byte of the footer. Beyond: the same."""

# --- Requests --------------------------------------------------------------------------------

REQUEST_BYTES = 1 << 20
"""A request of an operator. Beyond: the command refuses to send it, and the owner of the source
rejects it."""
REQUEST_CHARACTERS = 500
"""Characters of a text in a request: author, time, reason, release, fingerprint. Beyond: the
request is refused; texts of a cancellation are cut."""
REQUEST_FILES = 10_000
"""Files that a request names. Beyond: the request is refused; name fewer at once."""
REQUEST_LETTERS = 20_000
"""Objects of dead letters that a request names. Beyond: the request is refused; name fewer at
once."""
REQUEST_UNITS = 20_000
"""Work units of a request that marks them. Beyond: the request is refused; mark fewer at once."""
REQUEST_CHUNKS = 10_000
"""Chunks of a range of values that a request reads. Beyond: the request is rejected; give a longer
--chunk."""

# --- Notifications ---------------------------------------------------------------------------

MESSAGE_BYTES = 1 << 20
"""A message. Beyond: it is no hint, and counted as unreadable."""
MESSAGE_OBJECTS = 1000
"""Objects that a message names. Beyond: as above."""
MESSAGE_ENVELOPES = 3
"""Envelopes of a message, one in the other. Beyond: as above."""
MESSAGE_KEY_CHARACTERS = 4096
"""Characters of a name in a message. Beyond: as above."""
OPEN_HINTS = 10_000
"""Hints of a source that no save or scan has acknowledged. Beyond: its messages stay in the queue
until some are; other sources go on."""
WEBHOOK_MESSAGES = 1000
"""Messages by `POST /notify` that wait. Beyond: the sender gets 503."""
FOREIGN_MESSAGES = 1000
"""Messages of an hour, 9 of 10, that name objects of no source. Beyond: the sources poll until the
hour is over."""
OLD_MESSAGES = 1000
"""Messages, 9 of 10, that were sent more than ten minutes before they are received. Beyond: the
sources poll until newer ones come."""
HINTED_PARTITIONS = 100
"""Partitions that a scan of hinted ones lists without tracking them. Beyond: a scan of everything,
at most one each `poll_interval`."""
HINTED_FILES = 1000
"""Files that a scan asks for by name, without a watermark. Beyond: the next scan asks for the
others."""

# --- Listings and the status page ------------------------------------------------------------

PAGE_KEYS = 1000
"""Names in a page of a listing (Azure: 5,000). Beyond: the next page."""
FIRST_PAGE_KEYS = 100
"""Names in the first page. Beyond: the next page."""
CACHED_NAMES = 50_000
"""Names in directories of a local disk that are held between polls, of each place; about 7 MB. A
directory counts as four. Beyond: the directories that were not asked for longest are read again."""
SCAN_FILES = 50_000
"""New files that a scan holds. Beyond: the rest comes with the next scan."""
IGNORED_NAMES = 10_000
"""Names that a scan keeps of the files that it does not take. Beyond: not counted."""
CONNECTIONS = 64
"""Connections to the status page. Beyond: the longest idle one is cut off."""
STORY_CHARACTERS = 2048
"""Characters of a URI in a question to the page. Beyond: the question is refused."""
STORY_REQUESTS = 3000
"""Requests to stores for questions to the page at once; 10 a second come back. Beyond: the question
is refused, with the command for a terminal."""
SHOWN_STATE_BYTES = 8 << 20
"""A state file of the other daemon on the page. Beyond: only its age is shown."""
SHOWN_BATCH_BYTES = 16 << 20
"""An object of the journal on the page. Beyond: only its age and size are shown."""
SHOWN_COMMIT_BYTES = 2 << 20
"""A commit on the page. Beyond: only its beginning is shown, with a + behind the numbers."""
SHOWN_LETTER_BYTES = 4 << 20
"""An object of dead letters on the page. Beyond: only its size is shown."""
OTHER_PAGE_BYTES = 32 << 20
"""An answer of Penguin on the page of `blizzard up`. Beyond: the page says so."""

# --- Parquet files that Penguin commits ------------------------------------------------------

# About 20,000 column chunks: 200 columns in 100 row groups. A hostile footer takes thirty times as
# much memory when it is decoded.
FOOTER_BYTES = 4 << 20
"""A footer. Beyond: the file is quarantined."""
FOOTERS_DECODED_BYTES = 96 << 20
"""Footers of a batch, decoded. Beyond: the other files wait for the next batch."""
FILE_COLUMNS = 10_000
"""Columns of a file. Beyond: the file is quarantined."""
NEW_COLUMNS = 1000
"""Columns that a commit adds to the table. Beyond: the file is quarantined. Key:
tables.NAME.advanced.max_new_columns"""
# delta-rs parses the schema again with a JSON parser that fails at 128 levels. A struct takes three
# of them.
FILE_LEVELS = 24
"""Levels of a column. Beyond: the file is quarantined."""
FOOTER_LEVELS = 64
"""Levels of the footer itself. Beyond: the file is quarantined."""
FOOTER_ITEMS = 1_000_000
"""Items of a list, and bytes of a text, in a footer. Beyond: the file is quarantined."""
GROUP_ROWS = (1 << 31) - 1
"""Rows of a row group. Beyond: the file is quarantined."""
ROWS_PER_BYTE = 1 << 16
"""Rows for each byte of a file. Beyond: the file is quarantined."""
OUTPUT_ID_BYTES = 1024
"""An output id. Beyond: the file is quarantined."""
QUARANTINE_BYTES = 1 << 19
"""The short object of the quarantine. Beyond: its lines move to another object."""
