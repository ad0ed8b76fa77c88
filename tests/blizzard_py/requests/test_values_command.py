"""``blizzard backfill`` of a table, as a user gives it: SQLite, commands, Parquet files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blizzard_py.app import inspection
from blizzard_py.app.explaining import explain
from tests.support.direct_engine import DirectEngine
from tests.support.table_shop import WHERE, Shop

CHUNKS = ("--from", "1", "--to", "50", "--chunk", "step=20")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A table with rows 1 to 59, of which nothing was read yet."""
    monkeypatch.setattr("blizzard_py.engines.spark.engine.SparkEngine", DirectEngine)
    found = Shop(tmp_path)
    values = ", ".join(f"({n}, '1', '')" for n in range(1, 60))
    found.execute(f"INSERT INTO orders VALUES {values}")
    return found


@pytest.mark.promise("G-170")
def test_history_first_and_the_live_source_from_there_on(shop: Shop) -> None:
    done = shop.command("backfill", *CHUNKS)
    assert done.exit_code == 1
    assert "give --begin-live-at-end, with which it begins at --to" in done.output
    preview = shop.command("backfill", *CHUNKS, "--begin-live-at-end", "--dry-run")
    assert preview.exit_code == 0, preview.output
    assert "id from 1 up to 20" in preview.output
    assert "3 would ingest" in preview.output
    assert not (shop.folder / "lake/_blizzard").exists()
    done = shop.command("backfill", *CHUNKS, "--begin-live-at-end", "--why", "history")
    assert done.exit_code == 0, done.output
    assert "49 rows of 3 parts are in" in done.output
    assert shop.ids() == list(range(1, 50))
    shop.run()
    assert shop.ids() == list(range(1, 60))
    again = shop.command("backfill", *CHUNKS)
    assert again.exit_code == 0
    assert "1 present" in again.output
    assert shop.ids() == list(range(1, 60))
    status, _ = inspection.status(shop.config())
    told = status["pipelines"]["orders"]["sources"]["erp"]
    assert told["covered"] == [{"from": {"id": 1}, "up_to": {"id": 50}}]
    assert told["watermark"] == {"id": 59}


@pytest.mark.promise("G-170")
def test_backfill_refuses_ranges_that_would_duplicate_rows(shop: Shop) -> None:
    shop.run()
    for arguments, why in (
        (("--from", "0", "--to", "2"), "reads everything from the beginning on"),
        (("--from", "0", "--to", "2", "--begin-live-at-end"), "from the beginning on"),
        (("--from", "2", "--to", "2"), "--from must lie below --to"),
        (("--from", "x", "--to", "2"), "'x' is no whole number"),
        (("--from", "1", "--replace"), "published to stay"),
    ):
        for more in ((), ("--dry-run",)):
            done = shop.command("backfill", *arguments, *more)
            assert done.exit_code == 1, arguments
            assert why in done.output, done.output
    assert shop.ids() == list(range(1, 60))


def test_options_of_files_are_refused_by_name(shop: Shop) -> None:
    for words, why in (
        (("--again",), "are not for tables"),
        (("--assume-named",), "are not for tables"),
        (("--values", "a"), "is for sources of work units"),
    ):
        done = shop.command("backfill", "--from", "1", "--to", "2", *words)
        assert done.exit_code == 2
        assert why in done.output
    done = shop.command("backfill", "--from", "1")
    assert (done.exit_code, "give --to" in done.output) == (2, True)


def test_json_names_request_and_parts_and_explain_knows_them(shop: Shop) -> None:
    done = shop.command("backfill", *CHUNKS, "--begin-live-at-end", "--json")
    told = json.loads(done.stdout)
    assert (told["exit_code"], told["rows"]) == (0, 49)
    [request] = told["requests"]
    parts = [line["path"] for line in told["files"]]
    assert parts == [f"{request}-{number:06}#0" for number in range(3)]
    found = explain(shop.config(), f"{'/'.join(WHERE)}#{parts[1]}")
    assert found.verdict == "ingested"
    assert found.outputs
    odd = parts[1].replace("000001#", "000099#")
    assert explain(shop.config(), f"{'/'.join(WHERE)}#{odd}").verdict == "missing"


def test_a_column_of_text_is_refused_by_name(shop: Shop) -> None:
    shop.execute("UPDATE orders SET at = '2026-05-05'")
    shop.source["watermark"] = {"columns": ["at"], "bound": "max"}
    fields = shop.document["pipelines"]["orders"]["schema"]["fields"]
    fields.append({"name": "at", "type": "date"})
    shop.run()
    done = shop.command("backfill", "--from", "2026-05-01", "--to", "2026-05-03")
    assert done.exit_code == 1
    assert "at has values like '2026-05-05'" in done.output


def test_a_range_that_ends_above_what_there_is_is_refused(shop: Shop) -> None:
    shop.execute("DELETE FROM orders WHERE id > 2")
    done = shop.command("backfill", "--from=1", "--to=9", "--begin-live-at-end")
    assert (done.exit_code, "settled up to 2 by now" in done.output) == (1, True), done.output
    # A row may still join the highest value, which the live source then tells by its digests.
    done = shop.command("backfill", "--from=1", "--to=3", "--begin-live-at-end")
    assert (done.exit_code, "settled up to 2 by now" in done.output) == (1, True), done.output
    done = shop.command("backfill", "--from=1", "--to=2", "--begin-live-at-end")
    assert (done.exit_code, shop.ids()) == (0, [1]), done.output
    shop.execute("INSERT INTO orders VALUES (3, '3', '')")
    shop.run()
    assert shop.ids() == [1, 2, 3]


def test_backfill_reports_a_lost_checkpoint(shop: Shop) -> None:
    assert shop.command("backfill", *CHUNKS, "--begin-live-at-end").exit_code == 0
    (shop.folder / "lake/_blizzard/erp-orders_checkpoint.json").unlink()
    for more in (
        (),
        ("--dry-run",),
        ("--begin-live-at-end",),
        ("--begin-live-at-end", "--dry-run"),
    ):
        done = shop.command("backfill", *CHUNKS, *more)
        assert done.exit_code == 2, done.output
        assert "is missing, but" in done.output
    mailbox = shop.folder / "lake/_blizzard/requests/erp-orders"
    assert len(list(mailbox.glob("*.ended.json"))) == len(list(mailbox.glob("*.1.json"))) == 1


def test_an_older_checkpoint_lets_no_range_be_read_twice(shop: Shop) -> None:
    checkpoint = shop.folder / "lake/_blizzard/erp-orders_checkpoint.json"
    first = ("--from", "1", "--to", "20")
    assert shop.command("backfill", *first, "--begin-live-at-end").exit_code == 0
    older = checkpoint.read_bytes()
    shop.run()
    checkpoint.write_bytes(older)
    done = shop.command("backfill", *first, "--dry-run")
    assert (done.exit_code, "is stale" in done.output) == (1, True), done.output
    done = shop.command("checkpoint set", "--column", "id=59", "--yes")
    assert done.exit_code == 0, done.output
    done = shop.command("backfill", *CHUNKS)
    assert done.exit_code == 1, done.output
    assert "reads everything from the beginning on" in done.output


def test_a_table_without_rows_has_no_range_yet(shop: Shop) -> None:
    shop.execute("DELETE FROM orders")
    done = shop.command("backfill", *CHUNKS, "--begin-live-at-end")
    assert (done.exit_code, "nothing to read by id yet" in done.output) == (1, True), done.output
