"""Sources that replicas share: they are taken, given up and lost, and rows come once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from prometheus_client import REGISTRY

from blizzard_core.daemon import StopEvent
from blizzard_core.doctor.stores import UsedStore
from blizzard_core.errors import AccessDenied, ColdStartRefused, ConfigError, Unavailable
from blizzard_core.notifications.inbox import HintInbox
from blizzard_core.observability.health import ready
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_storage
from blizzard_core.storage.protocol import listed
from blizzard_py.__main__ import main
from blizzard_py.app import daemon, inspection
from blizzard_py.app.doctor import stores_of
from blizzard_py.app.replica_worker import ReplicaWorker
from blizzard_py.app.replicas import check_replicas, share_sources
from blizzard_py.app.workers import build, source_pipeline
from blizzard_py.replicas.assignment import NextStep
from blizzard_py.replicas.membership import Membership, new_replica
from tests.support.direct_engine import DirectEngine
from tests.support.memory_store import MemoryStorage
from tests.support.scenario import Scenario

LEASE = 30.0
NAME = "events/main"


class Replica:
    """A replica with one source, whose looks and cycles are called by hand."""

    def __init__(self, group: Group) -> None:
        config = load_config(group.scenario.config)
        [view] = build(config, DirectEngine())
        self.hints = HintInbox("s3://raw", group.monotonic)
        parts = replace(view.parts, monotonic=group.monotonic, hints=self.hints)
        own = new_replica("pod", "0" * 8)
        self.membership = Membership(group.leases, own, {NAME: NAME}, LEASE, group.monotonic)
        make = partial(source_pipeline, parts, replica_id=own.id)
        self.worker = ReplicaWorker(make, self.membership)
        self.stop = threading.Event()
        group.replicas.append(self)

    def cycle(self) -> bool:
        return self.worker.cycle(self.stop)

    @property
    def owns(self) -> bool:
        return self.worker.pipeline.owns

    @property
    def standby(self) -> str:
        return self.worker.activity.pulse.standby


class Group:
    """Replicas of one source on a disk, with one clock."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now = 1000.0
        self.leases = MemoryStorage("mem://leases", self.monotonic)
        self.replicas: list[Replica] = []
        self.files = 0

    def monotonic(self) -> float:
        return self.now

    def put(self) -> None:
        self.files += 1
        self.scenario.put_rows(f"date=2024-01-01/{self.files:03d}.json.gz", self.files)

    def pass_time(self, secs: float, *looking: Replica) -> None:
        for _ in range(round(secs / 10)):
            self.now += 10
            for each in looking:
                each.membership.look()

    def holder(self) -> tuple[Replica, Replica]:
        """Return the replica to which the source is assigned, and the other one."""
        one, other = self.replicas
        self.pass_time(20, one, other)
        return (one, other) if "assigned" in other.membership.wait_reason(NAME) else (other, one)

    def writer(self) -> dict[str, Any]:
        raw = self.scenario.table.read("_blizzard/events_main_checkpoint.json")
        return json.loads(raw)["writer"]

    def check(self) -> None:
        self.scenario.commit()
        assert self.scenario.ids() == [*range(1, self.files + 1)]


@pytest.fixture
def group(tmp_path: Path) -> Group:
    found = Group(Scenario(tmp_path, str(tmp_path / "place")))
    Replica(found)
    Replica(found)
    return found


def handovers(reason: str) -> float:
    return REGISTRY.get_sample_value("blizzard_handovers_total", {"reason": reason}) or 0.0


def test_assigned_replica_works_and_the_other_stands_by(group: Group) -> None:
    first, second = group.holder()
    group.put()
    assert (first.cycle(), second.cycle()) == (True, False)
    assert (first.owns, second.owns) == (True, False)
    assert (first.standby, second.standby) == ("", f"it is assigned to {first.membership.own}")
    assert first.hints.is_paused is False
    assert second.hints.is_paused is True
    assert group.writer()["id"].startswith(first.membership.own.id)
    assert ready((second.worker.activity.pulse,), 0.0).ok
    group.check()


@pytest.mark.promise("G-223")
def test_dead_replica_is_followed_after_a_lease(group: Group) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    group.put()
    group.pass_time(20, second)
    second.cycle()
    assert not second.owns
    group.pass_time(20, second)
    before = handovers("taken_from_dead")
    assert second.cycle()
    assert handovers("taken_from_dead") == before + 1
    group.check()


@pytest.mark.promise("G-224")
def test_replica_that_lost_its_source_waits_for_a_release(group: Group) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    group.pass_time(40, second)
    group.put()
    second.cycle()
    # The first one was only paused. Its view is old, and its next save is refused.
    group.put()
    assert not first.cycle()
    assert (first.owns, second.owns) == (False, True)
    epoch = group.writer()["epoch"]
    for _ in range(2):
        group.pass_time(10, first, second)
        first.cycle()
        second.cycle()
        assert "has not released it" in first.standby or "took it over" in first.standby
    assert group.writer()["epoch"] == epoch
    group.pass_time(30, first, second)
    second.cycle()
    assert group.writer()["released"] is True
    group.put()
    assert first.cycle()
    assert group.writer()["id"].startswith(first.membership.own.id)
    group.check()


class Releasing(DirectEngine):
    """Calls ``during`` in each job."""

    during: Callable[[], object] = staticmethod(lambda: None)

    def ingest(self, job: Any) -> Any:
        Releasing.during()
        return super().ingest(job)


def test_source_is_released_between_two_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.DirectEngine", Releasing)
    scenario = Scenario(tmp_path, str(tmp_path / "place"))
    scenario.main_source["checkpoint"] = {"interval_files": 1}
    scenario.write_config()
    group = Group(scenario)
    Replica(group), Replica(group)
    first, second = group.holder()
    for _ in range(4):
        group.put()
    group.pass_time(40, second)
    # The first one comes back in the middle of the second one's batch.
    monkeypatch.setattr(Releasing, "during", lambda: group.pass_time(50, first, second))
    second.cycle()
    done = json.loads(scenario.table.read("_blizzard/events_main_checkpoint.json"))
    assert not done.get("in_flight")
    assert 0 < done["totals"]["batches"] < 4
    assert "released" not in done["writer"]
    assert not second.cycle()
    assert group.writer()["released"] is True
    assert first.cycle()
    group.check()


def test_release_that_fails_is_tried_again(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    with monkeypatch.context() as patch:
        patch.setattr(first.worker.pipeline, "release", partial(_refuse, "503"))
        patch.setattr(first.membership, "step", lambda *_, **__: NextStep.RELEASE)
        with pytest.raises(Unavailable):
            first.cycle()
    assert first.owns
    second.cycle()
    assert not second.owns


@pytest.mark.promise("G-223")
def test_source_that_fails_here_goes_to_another(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    group.put()
    denied = Mock(side_effect=AccessDenied("s3://raw: access denied"))
    monkeypatch.setattr(first.worker.pipeline.source, "plan", denied)
    for _ in range(13):
        with pytest.raises(AccessDenied):
            first.cycle()
        group.pass_time(10, first, second)
        second.cycle()
    assert (first.owns, second.owns) == (True, False)
    group.pass_time(40, first, second)
    assert not first.cycle()
    assert second.cycle()
    assert (first.owns, second.owns) == (False, True)
    group.pass_time(60, first, second)
    assert not first.cycle()
    group.check()


def test_failures_before_a_handover_do_not_count(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = group.holder()
    group.put()
    first.cycle()
    denied = Mock(side_effect=AccessDenied("s3://raw: access denied"))
    step = first.membership.step
    for _ in range(2):
        monkeypatch.setattr(first.worker.pipeline.source, "plan", denied)
        with pytest.raises(AccessDenied):
            first.cycle()
        assert first.membership.refuse(NAME)  # not yet
        first.membership.accept(NAME)
        monkeypatch.setattr(first.membership, "step", lambda *_, **__: NextStep.RELEASE)
        assert not first.cycle()
        monkeypatch.setattr(first.membership, "step", step)
        group.pass_time(900, *group.replicas)


def test_failed_takes_before_a_stand_by_do_not_count(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = group.holder()
    group.put()
    denied = Mock(side_effect=AccessDenied("mem://table: access denied"))
    monkeypatch.setattr(first.worker.pipeline, "cycle", denied)
    step = first.membership.step
    for _ in range(2):
        with pytest.raises(AccessDenied):
            first.cycle()
        assert first.membership.refuse(NAME)  # not yet
        first.membership.accept(NAME)
        monkeypatch.setattr(first.membership, "step", lambda *_, **__: NextStep.STAND_BY)
        for _ in range(20):
            assert not first.cycle()
            group.pass_time(10, *group.replicas)
        monkeypatch.setattr(first.membership, "step", step)


@pytest.mark.promise("G-223")
def test_owner_that_cannot_release_a_source_loses_it(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    group.put()
    # It is assigned to the second one, and its owner may no longer write the checkpoint.
    monkeypatch.setattr(first.worker.pipeline, "release", partial(_refuse, "403"))
    other = second.membership.own.id
    monkeypatch.setattr(
        "blizzard_py.replicas.assignment._score", lambda _, found: bytes([found == other])
    )
    group.pass_time(40, first, second)
    for _ in range(60):
        with pytest.raises(Unavailable):
            first.cycle()
        group.pass_time(10, first, second)
        if second.cycle():
            break
    assert second.owns
    group.put()
    assert second.cycle()
    group.check()


def _refuse(text: str) -> None:
    raise Unavailable(text)


def test_standby_ends_its_pause_when_it_may_take(group: Group) -> None:
    first, second = group.holder()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            group.now += timeout or 0.0
            if group.now % 10 < 1:
                second.membership.look()
            return False

    began = group.now
    stop: StopEvent = Stop()
    assert second.worker.rest(600.0, stop)
    assert group.now - began <= LEASE + 12
    assert second.worker.is_called()
    assert first.membership.own != second.membership.own


def test_pending_files_of_a_standby_are_forgotten(group: Group) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    group.pass_time(40, second)
    second.cycle()
    group.pass_time(20, second)
    first.cycle()
    brief = first.worker.activity.brief()
    assert (brief["poll"], brief["pending_files"], brief["lag_secs"]) == (None, 0, 0.0)


def test_status_names_the_replica_of_each_source(group: Group) -> None:
    first, second = group.holder()
    group.put()
    first.cycle()
    place = group.scenario.place
    for each in group.leases.objects:
        open_storage(f"{place}/leases", {}).put_atomic(each, b"{}")
    found, errors = inspection.status(shared(group.scenario))
    assert not errors
    shares = {each["name"]: each["sources"] for each in found["replicas"]}
    own, other = str(first.membership.own), str(second.membership.own)
    assert shares == {own: [NAME], other: []}
    assert all(each["alive"] for each in found["replicas"])
    assert found["pipelines"]["events"]["sources"]["main"]["replica"] == own
    text = CliRunner().invoke(main, ["status", str(group.scenario.config)]).output
    assert f"{other}  " in text
    assert "none, stands by" in text


# -- configuration ----------------------------------------------------------------------------


def shared(scenario: Scenario, **replicas: Any) -> Any:
    scenario.document["global"]["replicas"] = {"uri": f"{scenario.place}/leases", **replicas}
    scenario.write_config()
    return load_config(scenario.config)


def test_replicas_of_one_configuration_share_sources(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path / "place"))
    config = shared(scenario)
    settings = config.global_.replicas
    made = [share_sources(settings, build(config, DirectEngine()), fresh=False) for _ in range(2)]
    assert made[0].membership.own.config == made[1].membership.own.config
    scenario.document["pipelines"]["events"]["transform"] = "SELECT id FROM source"
    other = shared(scenario)
    changed = share_sources(settings, build(other, DirectEngine()), fresh=False)
    assert changed.membership.own.config != made[0].membership.own.config


def _later_lease(document: dict[str, Any]) -> None:
    document["global"]["replicas"]["lease"] = "300s"


def _other_table(document: dict[str, Any]) -> None:
    document["pipelines"]["events"]["sink"]["table_uri"] += "2"


def _other_name(document: dict[str, Any]) -> None:
    sources = document["pipelines"]["events"]["sources"]
    sources["other"] = {**sources.pop("main"), "id": "events_main"}


@pytest.mark.parametrize("change", [_later_lease, _other_table, _other_name])
def test_replicas_that_would_not_agree_are_two_groups(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    scenario = Scenario(tmp_path, str(tmp_path / "place"))

    def group_of(config: Any) -> str:
        made = share_sources(config.global_.replicas, build(config, DirectEngine()), fresh=False)
        return made.membership.own.config

    before = group_of(shared(scenario))
    change(scenario.document)
    scenario.write_config()
    assert group_of(load_config(scenario.config)) != before


def test_fresh_ends_once_a_source_was_there(group: Group) -> None:
    first, _ = group.holder()
    first.worker._make = partial(first.worker._make, fresh=True)
    first.worker.pipeline = first.worker._make()
    group.put()
    first.cycle()
    group.scenario.table.delete("_blizzard/events_main_checkpoint.json")
    group.put()
    assert not first.cycle()
    group.pass_time(20, first)
    with pytest.raises(ColdStartRefused):
        first.cycle()


def test_standby_has_no_open_connection(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = group.holder()
    group.put()
    first.cycle()
    closed: list[str] = []
    monkeypatch.setattr(first.worker.pipeline.source, "close", lambda: closed.append(NAME))
    monkeypatch.setattr(first.membership, "step", lambda *_, **__: NextStep.RELEASE)
    first.cycle()
    assert closed == [NAME]


def test_lease_ends_before_the_engine_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = shared(Scenario(tmp_path, str(tmp_path / "place")))
    leases = open_storage(config.global_.replicas.uri, {})
    seen: list[int] = []

    def count(*_arguments: object, **_options: object) -> int:
        seen.append(len(list(listed(leases, "", None))))
        return 0

    monkeypatch.setattr(daemon, "run", count)
    monkeypatch.setattr(daemon.LazyEngine, "start_in_background", lambda *_, **__: None)
    monkeypatch.setattr(daemon.LazyEngine, "stop", count)
    assert daemon.run_daemon(config, once=False) == 0
    # Else the others leave its released sources to it until Spark has ended.
    assert seen == [1, 0]


def test_doctor_tries_the_folder_of_leases(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path / "place"))
    assert UsedStore("leases", f"{scenario.place}/leases") in stores_of(shared(scenario))


@pytest.mark.parametrize(("option", "said"), [("once", "--once"), ("take_over", "--take-over")])
def test_options_that_contradict_replicas_are_refused(
    tmp_path: Path, option: str, said: str
) -> None:
    config = shared(Scenario(tmp_path, str(tmp_path / "place")))
    check_replicas(config)
    with pytest.raises(ConfigError, match=said):
        check_replicas(config, **{option: True})
