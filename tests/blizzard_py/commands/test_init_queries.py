"""`blizzard init` of tables and APIs: what it writes runs as it is, and holds no secret."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from blizzard_core.errors import ConfigError
from blizzard_core.settings.http_sources import HttpSourceSettings
from blizzard_core.settings.load import load_config
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_py.__main__ import main as blizzard
from blizzard_py.commands.starter.target import Wanted, target
from blizzard_py.commands.starter.watermark import ColumnFacts, proposed
from blizzard_py.connections.postgresql.connection import PostgresqlConnection
from blizzard_py.connections.protocol import ColumnKind, ReadSelection, SourceColumn
from blizzard_py.job import FieldSpec
from blizzard_py.reading import Access
from tests.support.api_server import ApiServer, api_server, reply, shop
from tests.support.iceberg_catalog import FolderCatalog
from tests.support.mariadb_server import PASSWORD as MARIADB_PASSWORD
from tests.support.mariadb_server import MariadbServer
from tests.support.postgresql_server import PASSWORD, PostgresqlServer
from tests.support.scanned_files import SCANNED, moment


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with api_server() as server:
        yield server


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("PGPASSWORD", "MYSQL_PWD"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(blizzard, arguments)


def init(*arguments: str) -> Result:
    done = invoke("init", "c.yaml", *arguments)
    assert done.exit_code == 0, done.output
    return done


def written() -> str:
    return Path("c.yaml").read_text(encoding="utf-8")


def planned() -> Any:
    """Return the next poll's plan of the only source; the file is used unchanged."""
    checked = invoke("validate", "c.yaml")
    assert checked.exit_code == 0, checked.output
    done = invoke("plan", "c.yaml", "--json")
    assert done.exit_code == 0, done.output
    (pipeline,) = json.loads(done.stdout)["pipelines"].values()
    (source,) = pipeline["sources"].values()
    return source


def table_source() -> TableSourceSettings:
    (pipeline,) = load_config(Path("c.yaml")).pipelines.values()
    (source,) = pipeline.sources.values()
    assert isinstance(source, TableSourceSettings)
    return source


def field_types() -> dict[str, str]:
    (pipeline,) = load_config(Path("c.yaml")).pipelines.values()
    return pipeline.field_types


# -- databases -------------------------------------------------------------------


@pytest.mark.promise("G-166")
def test_a_postgresql_starter_runs_and_holds_no_password(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, amount numeric(12,2) NOT NULL, tags text[],"
        " extra jsonb, created_at timestamptz, updated_at timestamptz)",
        "CREATE INDEX ON orders (created_at)",
        "CREATE INDEX ON orders (updated_at)",
        "INSERT INTO orders VALUES (1, 2.5, '{a}', '{}', now(), now())",
        database=base,
    )
    done = init("--connection", postgresql.uri(base), "--table", "public.orders")
    assert "updated_at tells new rows (bound: settled)" in done.output
    assert "Set PGPASSWORD in the environment first." in done.output
    for text in (written(), done.output):
        assert PASSWORD not in text
        assert "open" not in text  # nor in any other dress
    assert 'password: "${PGPASSWORD}"' in written()
    assert "updated_at: a time that finds changed rows, and an index gives its order." in written()
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    source = table_source()
    assert (source.watermark.columns, source.watermark.bound) == (["updated_at"], "settled")
    assert source.watermark.key == []
    assert field_types() == {
        "id": "int64",
        "amount": "decimal(12,2)",
        "tags": "list",
        "extra": "json",
        "created_at": "timestamp",
        "updated_at": "timestamp",
    }
    found = planned()
    assert list(found["window"]["up_to"]) == ["updated_at"]
    assert len(found["tasks"]) == 1


def test_the_password_may_come_from_the_environment(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = postgresql.new_database()
    postgresql.execute("CREATE TABLE t (id int PRIMARY KEY, note text)", database=base)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    bare = f"postgresql://postgres@127.0.0.1:{postgresql.port}/{base}"
    done = init("--connection", bare, "--table", "t")
    assert "Set PGPASSWORD" not in done.output
    source = table_source()
    assert (source.watermark.columns, source.watermark.bound) == (["id"], "max")
    assert source.watermark.key == ["id"]


def test_without_an_index_the_key_is_proposed_with_a_reason(
    postgresql: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = postgresql.new_database()
    postgresql.execute(
        "CREATE TABLE orders (id bigint PRIMARY KEY, updated_at timestamptz)", database=base
    )
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    init("--connection", postgresql.uri(base), "--table", "orders")
    assert table_source().watermark.columns == ["id"]
    assert "id: the primary key finds new rows, but not changed ones." in written()
    assert "updated_at would tell those, too, but no index gives its order" in written()
    init("--connection", postgresql.uri(base), "--table", "orders", "--column", "updated_at",
         "--force")  # fmt: skip
    assert table_source().watermark.columns == ["updated_at"]
    assert "no index gives the order of updated_at" in written()


def test_composite_key_lists_its_columns_in_key_order(postgresql: PostgresqlServer) -> None:
    base = postgresql.new_database()
    postgresql.execute("CREATE TABLE t (a int, b int, c int, PRIMARY KEY (c, a))", database=base)
    connection = PostgresqlConnection(
        Access("postgresql", postgresql.uri(base)), ReadSelection(table="t")
    )
    with closing(connection):
        assert connection.key() == ["c", "a"]
        assert [connection.indexed(name) for name in "abc"] == [False, False, True]


@pytest.fixture
def base(here: Path) -> Path:
    path = here / "shop.db"
    with closing(sqlite3.connect(path)) as session, session:
        session.execute(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, modifiedAt TEXT, odd_name TEXT)"
        )
        session.execute("CREATE INDEX i ON orders (modifiedAt)")
        session.execute("INSERT INTO orders VALUES (1, '2026-05-04T12:00:00Z', '${x} # y')")
    return path


def test_a_sqlite_table_runs_unchanged(base: Path) -> None:
    init("--connection", f"sqlite://{base}", "--table", "orders", "--table-uri", "./lake/x")
    source = table_source()
    assert (source.watermark.columns, source.watermark.bound) == (["modifiedAt"], "max")
    assert source.id == "shop-orders"
    found = planned()
    assert found["window"]["up_to"] == {"modifiedAt": "2026-05-04T12:00:00Z"}
    assert "modifiedAt" in found["query"]


def test_init_uses_the_sqlite_primary_key_as_watermark_and_key(here: Path) -> None:
    with closing(sqlite3.connect(here / "a.db")) as session:
        session.execute("CREATE TABLE t (n TEXT, id INTEGER PRIMARY KEY, changed_on DATE)")
    init("--connection", f"sqlite://{here}/a.db", "--table", "t")
    assert table_source().watermark.columns == ["id"]
    assert table_source().watermark.key == ["id"]


def test_init_names_a_database_from_the_folder_of_the_file(here: Path) -> None:
    with closing(sqlite3.connect(here / "a.db")) as session:
        session.execute("CREATE TABLE t (id INTEGER PRIMARY KEY)")
    (here / "conf").mkdir()
    done = invoke("init", "conf/c.yaml", "--connection", "sqlite:a.db", "--table", "t")
    assert done.exit_code == 0, done.output
    config = load_config(here / "conf" / "c.yaml")
    [connection] = config.connections.values()
    assert getattr(connection, "uri", "") == f"{here}/conf/../a.db"
    assert config.pipelines["t"].sink.table_uri == f"{here}/lake/t"


def test_names_of_others_break_neither_yaml_nor_comments(here: Path) -> None:
    odd = 'a: [b] # ${HOME} "\n- c'
    with closing(sqlite3.connect(here / "a.db")) as session:
        session.execute(
            f'CREATE TABLE t (id INTEGER PRIMARY KEY, "{odd.replace(chr(34), chr(34) * 2)}"'
            ' "TEXT\n# x: y", "Yes" TEXT, "no" INT, "US Gross" INT)'
        )
        session.execute('CREATE TABLE "2024" ("on" INTEGER PRIMARY KEY, changed INT)')
    init("--connection", f"sqlite://{here}/a.db", "--table", "t")
    assert list(field_types()) == ["id", "Yes", "no", "US_Gross"]
    [pipeline] = load_config(Path("c.yaml")).pipelines.values()
    assert pipeline.fields[-1].from_ == "US Gross"
    assert "a column cannot have this name" in Path("c.yaml").read_text()
    init("--connection", f"sqlite://{here}/a.db", "--table", '"2024"', "--force")
    assert table_source().watermark.columns == ["on"]
    assert list(load_config(Path("c.yaml")).pipelines) == ["2024"]


def test_a_missing_table_and_an_existing_file_are_reported(base: Path) -> None:
    wrong = invoke("init", "c.yaml", "--connection", f"sqlite://{base}", "--table", "nothing")
    assert (wrong.exit_code, "there is no table nothing" in wrong.stderr) == (1, True)
    assert not Path("c.yaml").exists()
    init("--connection", f"sqlite://{base}", "--table", "orders")
    again = invoke("init", "c.yaml", "--connection", f"sqlite://{base}", "--table", "orders")
    assert (again.exit_code, "--force" in again.stderr) == (2, True)
    odd = invoke("init", "d.yaml", "--connection", f"sqlite://{base}", "--table", "orders",
                 "--column", "seen")  # fmt: skip
    assert "there is no column 'seen'; there are: id, modifiedAt, odd_name" in odd.stderr


def test_a_mariadb_starter_runs_and_holds_no_password(
    mariadb: MariadbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = mariadb.new_database()
    mariadb.execute(
        "CREATE TABLE orders (id bigint unsigned PRIMARY KEY, amount decimal(12,2) NOT NULL,"
        " paid tinyint(1), kind enum('a','b'), updated_at timestamp(6) NULL, day datetime,"
        " KEY (updated_at))",
        "INSERT INTO orders VALUES (18446744073709551615, 2.5, 1, 'b', '2026-05-04', now())",
        database=base,
    )
    done = init("--connection", mariadb.uri(base), "--table", "orders")
    assert "Set MYSQL_PWD in the environment first." in done.output
    for text in (written(), done.output):
        assert MARIADB_PASSWORD not in text
        assert "open" not in text  # nor in any other dress
    assert 'password: "${MYSQL_PWD}"' in written()
    monkeypatch.setenv("MYSQL_PWD", MARIADB_PASSWORD)
    source = table_source()
    assert (source.watermark.columns, source.watermark.bound) == (["updated_at"], "clock")
    assert field_types() == {
        "id": "decimal(20,0)",
        "amount": "decimal(12,2)",
        "paid": "int32",
        "kind": "string",
        "updated_at": "timestamp",
        "day": "timestamp",
    }
    found = planned()
    assert list(found["window"]["up_to"]) == ["updated_at"]
    assert len(found["tasks"]) == 1


# -- lakes -----------------------------------------------------------------------


def test_init_reads_a_delta_table_by_its_versions(here: Path) -> None:
    rows = pa.table({"id": pa.array([1], pa.int64()), "s": pa.array(["x"])})
    deltalake.write_deltalake(str(here / "in" / "events"), rows)
    done = init("--connection", str(here / "in"), "--driver", "delta", "--table", "events")
    assert "its versions tell new rows" in done.output
    assert table_source().watermark.columns == []
    assert planned()["window"]["up_to"]["version"] == 0


def test_init_reads_an_iceberg_table_by_its_versions(here: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    table = FolderCatalog("default", warehouse=str(here / "in")).create_table("db.events", schema)
    table.append(pa.table({"id": [1], "at": pa.array([1], schema.field("at").type)}, schema))
    metadata = Path(table.refresh().metadata_location.removeprefix("file://"))
    (metadata.parent / "version-hint.text").write_text(metadata.name, encoding="utf-8")
    done = init("--connection", str(here / "in"), "--driver", "iceberg", "--table", "db.events")
    assert "its versions tell new rows" in done.output
    source = table_source()
    assert (source.watermark.columns, source.id) == ([], "in-events")
    assert field_types() == {"id": "int64", "at": "timestamp"}
    assert planned()["window"]["up_to"]["version"] == 1
    init("--connection", str(here / "in"), "--driver", "iceberg", "--table", "db.events",
         "--column", "at", "--force")  # fmt: skip
    assert (table_source().watermark.columns, table_source().watermark.bound) == (["at"], "max")
    assert list(planned()["window"]["up_to"]) == ["at"]


def test_init_reads_parquet_files_by_a_time_column(here: Path) -> None:
    (here / "in" / "a").mkdir(parents=True)
    at = pa.array([1], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"id": [1], "at": at}), here / "in" / "a" / "1.parquet")
    init("--connection", str(here / "in"), "--driver", "parquet", "--table", "a")
    assert (table_source().watermark.columns, table_source().watermark.bound) == (["at"], "max")
    assert "at: a time; it finds new rows if it is set when they come." in written()
    assert list(planned()["window"]["up_to"]) == ["at"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("csv", "string"),
        ("ndjson", "timestamp"),
        ("avro", "timestamp"),
        ("orc", "timestamp"),
        ("excel", "string"),
    ],
)
def test_init_reads_scanned_files_by_a_time_column(here: Path, name: str, kind: str) -> None:
    form = SCANNED[name]
    form.write(here / "in" / "a" / "1", [{"id": 1, "at": moment(1)}])
    init("--connection", str(here / "in"), "--driver", form.driver, "--table", "a")
    assert (table_source().watermark.columns, table_source().watermark.bound) == (["at"], "rows")
    assert field_types()["at"] == kind
    assert list(planned()["window"]["up_to"]) == ["at"]


# -- APIs ------------------------------------------------------------------------


def test_an_api_runs_unchanged_and_its_token_stays_outside(
    api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.answer = shop([{"id": 1, "total": 2.5, "updated_at": "2026-05-04T12:00:00Z"}])
    monkeypatch.setenv("CRM_TOKEN", "open-sesame")
    address = f"{api.url}/v1/none?state=all&api_key=abc123"
    init("--connection", address, "--records", "items", "--since", "since", "--token-env",
         "CRM_TOKEN")  # fmt: skip
    assert api.asked[0].headers["authorization"] == "Bearer open-sesame"
    assert api.asked[0].params == {"state": "all", "api_key": "abc123"}
    for secret in ("open-sesame", "abc123"):
        assert secret not in written()
    assert 'api_key: "${API_API_KEY}"' in written()
    monkeypatch.setenv("API_API_KEY", "abc123")
    (pipeline,) = load_config(Path("c.yaml")).pipelines.values()
    (source,) = pipeline.sources.values()
    assert isinstance(source, HttpSourceSettings)
    assert (source.watermark.columns, source.records) == (["updated_at"], "items")
    assert source.watermark.push.from_.param == "since"
    assert planned()["request"]["params"]["state"] == "all"


def test_init_refuses_an_api_without_records(api: ApiServer) -> None:
    api.script(reply({"items": []}))
    wrong = invoke("init", "c.yaml", "--connection", f"{api.url}/o", "--records", "items",
                   "--since", "since")  # fmt: skip
    assert (wrong.exit_code, "has nothing from which columns can be derived" in wrong.stderr) == (
        2,
        True,
    )
    api.script(reply({"data": []}))
    wrong = invoke("init", "c.yaml", "--connection", f"{api.url}/o", "--records", "items",
                   "--since", "since")  # fmt: skip
    assert (wrong.exit_code, "data" in wrong.stderr) == (1, True)


def test_an_api_is_not_proposed_a_column_without_times(api: ApiServer) -> None:
    api.answer = shop([{"id": 1, "updated_at": "2026-05-04T12:00:00Z"}])
    wrong = invoke("init", "c.yaml", "--connection", f"{api.url}/none", "--records", "items",
                   "--since", "since_id", "--column", "id")  # fmt: skip
    assert wrong.exit_code == 2
    assert "'id' is int64, and an API is read in windows of time" in wrong.stderr


# -- options ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--table", "orders"), "--table: goes with --connection"),
        (("--connection", "sqlite://a.db", "--source-uri", "./raw"), "not both"),
        (("--connection", "sqlite://a.db"), "--table: is required"),
        (("--connection", "oracle://h/x", "--table", "t"), "no driver is known by its beginning"),
        (("--connection", "sqlite://a.db", "--table", "t", "--since", "x"), "--since: is for APIs"),
        (("--connection", "http://h/x", "--records", ""), "--since: is required"),
        (
            ("--connection", "http://h/x", "--records", "", "--since", "s", "--token-env", "NO_"),
            "environment variable NO_ is not set",
        ),
    ],
)
def test_init_refuses_invalid_option_combinations(arguments: Sequence[str], told: str) -> None:
    wrong = invoke("init", "c.yaml", *arguments)
    assert (wrong.exit_code, told in wrong.stderr) == (2, True), wrong.output


def test_passwords_leave_uris_wherever_they_stand() -> None:
    for uri in (
        "postgresql://reader:s3cret@db:5432/shop?sslmode=require",
        "postgresql://reader@db:5432/shop?password=s3cret&sslmode=require",
    ):
        found = target(Wanted(uri, table="public.orders"), {})
        assert found.connection["uri"] == "postgresql://reader@db:5432/shop?sslmode=require"
        assert found.connection["password"].value == "s3cret"
        assert "s3cret" not in repr(found)
        assert (found.name, found.pipeline) == ("shop", "orders")
    with pytest.raises(ConfigError, match="sslpassword would stand in the file") as refused:
        target(Wanted("mysql://r@db/shop?sslpassword=s3cret", table="t"), {})
    assert "s3cret" not in str(refused.value)


# -- which column ----------------------------------------------------------------


def column(name: str, kind: ColumnKind) -> SourceColumn:
    return SourceColumn(name, kind, kind, FieldSpec(name, "string", True))


COLUMNS = (
    column("id", "number"),
    column("created_at", "time"),
    column("changed_on", "date"),
    column("last_modified", "time"),
    column("updated_by", "text"),
    column("uuid", "other"),
)


@pytest.mark.parametrize(
    ("indexed", "key", "chosen"),
    [
        (("created_at", "changed_on", "last_modified"), ("id",), "last_modified"),
        (("created_at", "changed_on"), ("id",), "changed_on"),
        (("created_at",), ("id",), "id"),
        (("created_at",), ("uuid",), "created_at"),
        (("created_at",), ("id", "uuid"), "created_at"),
        ((), (), "last_modified"),
        (None, (), "last_modified"),
    ],
)
def test_a_changed_time_with_an_index_comes_first_then_the_key(
    indexed: Sequence[str] | None, key: Sequence[str], chosen: str
) -> None:
    found = proposed(ColumnFacts(COLUMNS, key, indexed), "t")
    assert found.column == chosen
    assert found.why


def test_nothing_is_proposed_that_may_not_grow() -> None:
    told = "Columns: updated_by .text., uuid .other.. Name one with --column"
    for text_times in (False, True):
        with pytest.raises(ConfigError, match=told):
            proposed(ColumnFacts(COLUMNS[-2:], ("uuid",), (), text_times=text_times), "t")
    odd = ColumnFacts((column("updated at", "time"),), (), None)
    with pytest.raises(ConfigError, match="Name one with --column"):
        proposed(odd, "t")
