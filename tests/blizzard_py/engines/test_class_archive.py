from __future__ import annotations

from pathlib import Path

import pytest

from blizzard_py.engines.spark import class_archive
from blizzard_py.engines.spark.class_archive import archive_name, archive_options, is_complete


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the environment of a machine with a Java of its own and no archive."""
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    (tmp_path / "image").mkdir()
    monkeypatch.setattr(class_archive.sys, "prefix", str(tmp_path / "image"))
    return {"JAVA_HOME": str(tmp_path / "java"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def put(archive: Path, content: bytes = b"\xa8\xab\x0b\xf0 classes", mode: int = 0o444) -> Path:
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(content)
    archive.chmod(mode)
    return archive


def named(environment: dict[str, str]) -> str:
    return archive_name(environment, "queries")


def test_the_first_jvm_of_a_machine_writes_an_archive(environment: dict[str, str]) -> None:
    option, *_ = archive_options("", environment)
    place = Path(environment["XDG_CACHE_HOME"], "blizzard-penguin", named(environment))
    assert option == f"-XX:ArchiveClassesAtExit={place}"
    assert place.parent.is_dir()


@pytest.mark.parametrize("folder", ["image", "cache/blizzard-penguin"])
def test_an_archive_is_used(environment: dict[str, str], tmp_path: Path, folder: str) -> None:
    (tmp_path / "cache").mkdir()
    archive = put(tmp_path / folder / named(environment))
    assert archive_options("", environment)[0] == f"-XX:SharedArchiveFile={archive}"


def test_an_unfinished_archive_is_written_again(environment: dict[str, str]) -> None:
    Path(environment["XDG_CACHE_HOME"]).mkdir()
    place = Path(environment["XDG_CACHE_HOME"], "blizzard-penguin", named(environment))
    put(place, bytes(4096) + b"classes without the head")
    assert archive_options("", environment)[0].startswith("-XX:ArchiveClassesAtExit=")


def test_an_archive_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    assert is_complete(put(tmp_path / "own.jsa"))
    assert not is_complete(put(tmp_path / "groups.jsa", mode=0o464))
    assert not is_complete(put(tmp_path / "all.jsa", mode=0o446))


def test_another_java_has_another_archive(environment: dict[str, str]) -> None:
    before = named(environment)
    Path(environment["JAVA_HOME"], "bin/java").write_text("a newer one")
    assert named(environment) != before


@pytest.mark.parametrize(
    "given",
    ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-ea -XX:ArchiveClassesAtExit=/mine.jsa"],
)
def test_the_options_of_the_user_decide(environment: dict[str, str], given: str) -> None:
    assert archive_options(given, environment) == []


def test_without_a_java_or_a_folder_there_is_no_option(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert archive_options("", {**environment, "JAVA_HOME": str(tmp_path)}) == []
    (tmp_path / "file").touch()
    assert archive_options("", {**environment, "XDG_CACHE_HOME": str(tmp_path / "file")}) == []
