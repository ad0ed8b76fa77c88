"""The membership of replicas in a group, on a store in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest

from blizzard_core.checkpoint.writer_identity import Process, Writer, this_process
from blizzard_core.errors import AccessDenied, FencedError, StorageError, Unavailable
from blizzard_py.replicas.assignment import NextStep
from blizzard_py.replicas.leases import Replica, refusal, replica_of
from blizzard_py.replicas.membership import Membership, new_replica
from tests.support.memory_store import MemoryStorage

LEASE = 30.0
SOURCES = {f"p/s{n}": f"p/s{n}" for n in range(4)}


class Group:
    """Replicas on one store; time passes by `pass_time`, in which those given look."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.storage = MemoryStorage("mem://leases", lambda: self.now)

    def join(self, config: str = "0" * 8) -> Membership:
        own = new_replica("pod", config)
        return Membership(self.storage, own, SOURCES, LEASE, lambda: self.now)

    def pass_time(self, secs: float, *looking: Membership) -> None:
        for _ in range(round(secs / 10)):
            self.now += 10
            for each in looking:
                each.look()


def shares(*members: Membership) -> list[int]:
    return [sum(m.step(s, owns=False) is NextStep.TAKE for s in SOURCES) for m in members]


@pytest.fixture
def group() -> Group:
    return Group()


def test_one_replica_takes_everything_at_once(group: Group) -> None:
    alone = group.join()
    assert shares(alone) == [0]
    alone.look()
    assert shares(alone) == [4]


def test_replicas_share_out_without_asking(group: Group) -> None:
    members = [group.join(), group.join()]
    group.pass_time(20, *members)
    assert shares(*members) == [2, 2]


def test_a_source_is_released_after_a_full_lease(group: Group) -> None:
    first, second = group.join(), group.join()
    first.look()
    group.pass_time(20, first, second)
    [given, _] = [s for s in SOURCES if second.step(s, owns=False) is NextStep.TAKE]
    assert first.step(given, owns=True) is NextStep.WORK
    group.pass_time(30, first, second)
    assert first.step(given, owns=True) is NextStep.RELEASE


def test_a_dead_replica_is_followed_and_its_lease_removed(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    group.pass_time(20, second)
    assert shares(second) == [2]
    group.pass_time(10, second)
    assert shares(second) == [4]
    assert len(group.storage.objects) == 2
    group.pass_time(400, second)
    assert len(group.storage.objects) == 1


def writer_of(member: Membership, *, released: bool = False) -> Writer:
    elsewhere = Process("pod", 1, 1.0, "another machine")
    return Writer(member.own.id + "0" * 20, 3, elsewhere, released)


def admits(member: Membership, found: Writer) -> bool:
    try:
        member.admit("p/s1", found)
    except FencedError:
        return False
    return True


@pytest.mark.promise("G-224")
def test_only_released_or_dead_writers_are_replaced(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    assert not admits(second, writer_of(first))
    assert admits(second, writer_of(first, released=True))
    assert admits(second, writer_of(second))
    group.pass_time(30, second)
    assert admits(second, writer_of(first))


def test_a_replica_that_came_since_a_look_keeps_its_source(group: Group) -> None:
    first, second = group.join(), group.join()
    first.look()
    second.look()  # and takes a source
    assert not admits(first, writer_of(second))
    group.pass_time(10, first, second)
    assert not admits(first, writer_of(second))


def test_a_view_from_before_a_pause_takes_nothing_from_the_dead(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    group.pass_time(40, first)
    assert admits(first, writer_of(second))
    group.pass_time(40, second)  # it had a pause of its own, and is back
    assert not admits(first, writer_of(second))


def test_a_lease_removed_by_hand_gives_nothing_away(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    group.storage.delete(first.own.object_name)
    second.look()
    assert shares(second) == [4]
    assert not admits(second, writer_of(first))
    group.pass_time(10, first, second)
    assert shares(second) == [2]


def test_a_process_that_was_paused_takes_nothing(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    group.pass_time(100, first)
    assert shares(second) == [0]
    second.look()
    assert shares(first, second) == [4, 2]
    assert not admits(second, writer_of(first))


def test_nobody_takes_anything_while_leases_cannot_be_read(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)

    def refuse(_operation: str, _path: str) -> None:
        raise Unavailable("mem://leases: 503")

    group.storage.before_mutation = refuse
    for _ in range(10):
        group.now += 10
        with pytest.raises(Unavailable):
            second.look()
    assert shares(first, second) == [0, 0]
    assert all(second.step(s, owns=True) is NextStep.WORK for s in SOURCES)
    group.storage.before_mutation = lambda _operation, _path: None
    second.look()
    # Nobody could renew meanwhile, so nobody counts as dead.
    assert not admits(second, writer_of(first))


def test_a_replica_that_cannot_list_does_not_renew(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    assert shares(first, second) == [2, 2]

    def denied(*_arguments: object) -> None:
        raise StorageError("mem://leases: 403")

    for _ in range(4):
        group.pass_time(10, first)
        with monkeypatch.context() as patch:
            patch.setattr(group.storage, "list_range", denied)
            with pytest.raises(StorageError):
                second.look()
    # Else the first one would give up what the other one never takes.
    assert shares(first, second) == [4, 0]


def test_a_crash_loop_gets_no_source(group: Group) -> None:
    first = group.join()
    first.look()
    for _ in range(20):
        group.join().look()  # and crashes: nobody renews or removes its lease
        for _ in range(2):
            group.pass_time(10, first)
            assert all(first.step(each, owns=True) is NextStep.WORK for each in SOURCES)


def test_another_lease_with_the_id_gives_nothing_away(group: Group) -> None:
    first, second = group.join(), group.join()
    forged = replace(first.own, host="a")
    group.storage.put_atomic(forged.object_name, b"")
    group.pass_time(60, first, second)
    assert not admits(second, writer_of(first))


@pytest.mark.parametrize("host", ["copies/pod", "pod\x1b[2J", "p" * 101])
def test_a_host_that_no_replica_has_is_no_lease(host: str) -> None:
    assert replica_of(f"replica-{host}-{'a' * 12}.{'0' * 8}.json") is None


def test_other_configurations_share_out_among_themselves(group: Group) -> None:
    old, new = group.join(), group.join("1" * 8)
    group.pass_time(20, old, new)
    assert shares(old, new) == [4, 4]
    assert not admits(new, writer_of(old))


def test_a_writer_without_a_lease_counts_by_its_process(group: Group) -> None:
    member = group.join()
    member.look()
    elsewhere = Process("pod", 1, 1.0, "another machine")
    for process in (elsewhere, this_process()):
        found = Writer("f" * 32, 3, process)
        assert not admits(member, found)
        group.pass_time(10, member)
        assert admits(member, found)


def test_objects_of_others_are_no_leases(group: Group) -> None:
    member = group.join()
    for name in ("readme.txt", "data/part.parquet", "replicas.yaml"):
        group.storage.put_atomic(name, b"")
    with mock.patch.object(group.storage, "list_range", wraps=group.storage.list_range) as listing:
        member.look()
    assert shares(member) == [4]
    # Of a folder with much else in it only leases are listed.
    [((after, until), _)] = listing.call_args_list
    assert not any(after < name < until for name in ("readme.txt", "data/", "replicas.yaml"))
    assert after < member.own.object_name < until


@pytest.mark.promise("G-223")
def test_a_source_moves_from_a_replica_that_refuses_it(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    [given, kept] = [s for s in SOURCES if first.step(s, owns=False) is NextStep.TAKE]
    assert first.refuse(given)
    assert not first.refuse(given)
    group.pass_time(20, first, second)
    assert first.step(given, owns=True) is NextStep.WORK
    assert second.step(given, owns=False) is NextStep.TAKE
    group.pass_time(30, first, second)
    assert first.step(given, owns=True) is NextStep.RELEASE
    # The second one cannot work on it either: it goes back, and stays.
    second.refuse(given)
    group.pass_time(60, first, second)
    assert second.step(given, owns=True) is NextStep.RELEASE
    assert first.step(given, owns=False) is NextStep.TAKE
    assert first.step(kept, owns=True) is NextStep.WORK
    # It works now, so the others no longer count.
    first.accept(given)
    group.pass_time(60, first, second)
    assert first.step(given, owns=True) is NextStep.WORK
    assert sum(name.endswith(".refused") for name in group.storage.objects) == 1


def test_source_that_works_keeps_no_other_of_its_unit(group: Group) -> None:
    units = {"p/a": "p/a", "p/b": "p/a"}
    first, second = (
        Membership(group.storage, new_replica("pod", "0" * 8), units, LEASE, lambda: group.now)
        for _ in range(2)
    )
    group.pass_time(20, first, second)
    [owner] = [each for each in (first, second) if each.step("p/a", owns=False) is NextStep.TAKE]
    for _ in range(6):
        owner.refuse("p/a")
        owner.accept("p/b")
        group.pass_time(10, first, second)
    assert owner.step("p/a", owns=True) is NextStep.RELEASE
    owner.accept("p/a")
    group.pass_time(10, first, second)
    assert not any(name.endswith(".refused") for name in group.storage.objects)


def test_replica_on_its_way_out_gets_no_refused_source(group: Group) -> None:
    leaving, second = group.join(), group.join()
    group.pass_time(20, leaving, second)
    for source in SOURCES:
        second.refuse(source)  # and it may be able to work on them again
    leaving.leave()
    group.pass_time(20, leaving, second)
    assert shares(second) == [4]


def test_a_dead_replica_leaves_no_refusal_behind(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    first.refuse("p/s1")
    group.pass_time(10, first, second)
    group.pass_time(400, second)
    assert list(group.storage.objects) == [second.own.object_name]


def test_a_replica_on_its_way_out_leaves_all_to_others(group: Group) -> None:
    leaving, second = group.join(), group.join()
    group.pass_time(20, leaving, second)
    leaving.leave()
    group.pass_time(20, leaving, second)
    assert shares(second) == [4]
    # What it still works on is its own until it has released it.
    assert not admits(second, writer_of(leaving))


def refuse_deletes(group: Group) -> list[str]:
    """Let the store refuse each DELETE; return the list of those that it is asked for."""
    asked: list[str] = []

    def refuse(operation: str, path: str) -> None:
        if operation == "delete":
            asked.append(path)
            raise AccessDenied(f"mem://leases/{path}: 403")

    group.storage.before_mutation = refuse
    return asked


def test_a_refused_delete_is_not_repeated(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    asked = refuse_deletes(group)
    unknown = refusal("0" * 12, "p/s1")
    group.storage.objects[unknown] = (b"{", group.now + 9e9)
    group.pass_time(900, second)  # and raises nothing
    assert asked == [unknown, first.own.object_name]
    assert shares(second) == [4]


def test_own_refusals_that_stay_cost_one_request_a_look(group: Group) -> None:
    member = group.join()
    for source in SOURCES:
        member.refuse(source)
    group.pass_time(20, member)
    for source in SOURCES:
        member.accept(source)
    asked = refuse_deletes(group)
    group.pass_time(100, member)
    assert len(asked) == 10
    group.storage.before_mutation = lambda _operation, _path: None
    group.pass_time(10, member)
    assert list(group.storage.objects) == [member.own.object_name]


def test_many_refusals_delay_no_renewal(group: Group) -> None:
    units = {f"p/s{n}": f"p/s{n}" for n in range(100)}
    first, second = (
        Membership(group.storage, new_replica("pod", "0" * 8), units, LEASE, lambda: group.now)
        for _ in range(2)
    )
    group.pass_time(20, first, second)
    for unit in units:
        first.refuse(unit)

    def takes_a_second(_operation: str, path: str) -> None:
        group.now += path.endswith(".refused")

    group.storage.before_mutation = takes_a_second
    for refusals in (range(10, 101, 10), range(90, -1, -10)):
        for number in refusals:
            began = group.now
            first.look()
            assert group.now - began <= LEASE / 3
            assert sum(name.endswith(".refused") for name in group.storage.objects) == number
        for unit in units:
            first.accept(unit)


def test_source_goes_from_an_owner_that_refuses_it(group: Group) -> None:
    first, second = group.join(), group.join()
    group.pass_time(20, first, second)
    first.refuse("p/s1")
    for leases in (10, 20):
        # Each writer has that long, however long its replica has refused the source before.
        found = replace(writer_of(first), id=first.own.id + str(leases) * 10)
        assert not admits(second, found)
        group.pass_time(leases * LEASE - 10, first, second)
        assert not admits(second, found)
        group.pass_time(30, first, second)
        # Again, since it may fail to write the checkpoint, and that has to count.
        assert [admits(second, found) for _ in range(2)] == [True, True]
        with pytest.raises(FencedError, match="has not released it"):
            second.admit("p/s2", found)


def test_two_groups_do_not_take_a_source_for_ever(group: Group) -> None:
    members = [group.join(), group.join("1" * 8)]
    group.pass_time(20, *members)
    for each in members:
        each.refuse("p/s1")
    holder, moves = members[0], []
    for number in range(1000):
        group.pass_time(10, *members)
        found = replace(writer_of(holder), id=holder.own.id + f"{len(moves):020d}")
        other = members[holder is members[0]]
        if admits(other, found):
            holder = other
            moves.append(number)
    assert 0 < len(moves) <= 10


def test_leaving_removes_the_lease(group: Group) -> None:
    member = group.join()
    with member.taking_part(threading.Event()):
        assert shares(member) == [4]
        assert list(group.storage.objects) == [member.own.object_name]
        member.leave()
        member.look()
        assert len(group.storage.objects) == 2
    assert not group.storage.objects


def test_hosts_become_names_of_objects() -> None:
    assert new_replica("my host/ü", "0" * 8).host == "my-host--"
    made: Callable[[], Replica] = lambda: new_replica("", "0" * 8)  # noqa: E731
    assert made().host == "host"
    assert made() != made()
