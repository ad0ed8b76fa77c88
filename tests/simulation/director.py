"""Director of a run: it plays the plan's events and restarts the daemons."""

from __future__ import annotations

from tests.simulation import operators
from tests.simulation.faults import Shot
from tests.simulation.plan import DAY, Event, Settings, source_uri
from tests.simulation.processes import RESTART_SECS, Process
from tests.simulation.scheduler import Owner
from tests.simulation.world import SimulatedWorld, SourceFile, Version

# Who looks after the daemons does so this often, and once faults have ended.
LOOK_SECS = 5.0
CALM_LOOK_SECS = 30.0
MAX_CRASHES = 10
KINDS = ("blizzard", "penguin")


class Director:
    """Applies the plan's events. Not part of what is tested."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.processes: dict[str, list[Process]] = {kind: [] for kind in KINDS}
        self.down: dict[str, tuple[float, bool]] = {}
        self.idle_until: dict[str, float] = {}
        # Faults of the incarnation that is started next.
        self.next_shots: dict[str, list[Shot]] = {kind: [] for kind in KINDS}
        self.out_until = dict.fromkeys(KINDS, 0.0)
        self.owner = Owner("director")
        world.has_reader = self._has_reader

    # -- time --------------------------------------------------------------------------

    def begin(self) -> None:
        """Files that were there before, the first daemons, and a task for all that follows."""
        start = self.world.now
        early = [e for e in self.world.plan.events if e.at <= 0]
        for found in early:
            self.apply(found)
        for kind in KINDS:
            self.start(kind)
        if self.world.settings.replicas:
            self.start("blizzard")
        later = [e for e in self.world.plan.events if e.at > 0]

        def play() -> None:
            for found in later:
                self.world.scheduler.sleep(max(0.0, start + found.at - self.world.now))
                self.apply(found)

        self.world.scheduler.spawn(self.owner, play)

    def apply(self, found: Event) -> None:
        """Let it happen."""
        handler = getattr(self, f"on_{found.kind}", None)
        if handler is not None:
            handler(found)
        else:
            operators.act(self, found)

    def supervise(self) -> float:
        """Start again what has ended, after its downtime; when to look again, in seconds."""
        now = self.world.now
        rest = CALM_LOOK_SECS if self.world.calm else LOOK_SECS
        return max(rest, min(map(self._next_look, KINDS)) - now)

    def _next_look(self, kind: str) -> float:
        """Return the time until which nothing happens to a daemon by itself."""
        now = self.world.now
        alive = [p for p in self.processes[kind] if not p.is_over]
        wanted = 2 if kind == "blizzard" and self.world.settings.replicas else 1
        if len(alive) >= wanted:
            return min(process.paused_until for process in alive)
        last = next(p for p in reversed(self.processes[kind]) if p.is_over or not alive)
        secs, zombie = self.down.pop(kind, (RESTART_SECS, False))
        if not zombie:
            self.world.scheduler.kill(last.executors)
        until = self.idle_until.setdefault(kind, (last.died_at or now) + secs)
        until = max(until, self.out_until[kind])
        # One that cannot start is not started for ever.
        if now >= until and sum(self.world.problems.values()) < MAX_CRASHES:
            del self.idle_until[kind]
            self.start(kind)
        return until

    def start(self, kind: str) -> Process:
        """Start a new process of a daemon."""
        made = Process(self.world, kind, len(self.processes[kind]) + 1)
        if self.processes[kind]:
            made.skew = self.processes[kind][-1].skew
        self.processes[kind].append(made)
        made.faults.armed += self.next_shots[kind]
        self.next_shots[kind].clear()
        made.start()
        return made

    def _has_reader(self) -> bool:
        return any(not process.is_over for process in self.processes["blizzard"])

    def rolled_out(self, settings: Settings, what: str) -> None:
        """Roll out another configuration: running daemons restart with it."""
        self.world.settings = settings
        self.world.note(f"operator: the configuration is changed ({what})")
        for process in self.processes["blizzard"]:
            if not process.is_over:
                process.died()

    def latest(self, kind: str) -> Process:
        """Return the process that was started last."""
        return self.processes[kind][-1]

    def calm(self) -> None:
        """End the faults: paused processes wake up, and one process of each daemon runs."""
        world = self.world
        world.calm = True
        world.note("faults end")
        for action in world.to_do:
            action()
        world.to_do.clear()
        world.unreadable.clear()
        world.slow_secs = 0.0
        for kind in KINDS:
            for process in self.processes[kind]:
                process.faults.armed.clear()
                process.skew = 0.0
            alive = [p for p in self.processes[kind] if not p.is_over]
            if len(alive) == 1 and alive[0].is_well and not self._relies_on_starts(kind):
                continue
            paused = [p for p in alive if p.paused_until > world.now]
            for process in alive:
                if process not in paused:
                    process.died()
            self.idle_until.pop(kind, None)
            self.down.pop(kind, None)
            self.out_until[kind] = 0.0
            self.next_shots[kind].clear()
            self.start(kind)
            for process in paused:
                world.note(f"{process.name} wakes up")
                process.paused_until = world.now + 2 * world.chance.random()

    def start_again(self) -> None:
        """Start Blizzard once more if it scans everything at starts only."""
        if self._relies_on_starts("blizzard"):
            for process in self.processes["blizzard"]:
                if not process.is_over:
                    process.died()
            self.start("blizzard")

    def _relies_on_starts(self, kind: str) -> bool:
        settings = self.world.settings
        is_rare = (settings.full_scan or 0) >= DAY and not settings.hints
        return kind == "blizzard" and is_rare

    # -- writers -----------------------------------------------------------------------

    def on_write(self, found: Event) -> None:
        self.written(source_uri(found.get("source", 0)), found)

    def written(self, uri: str, found: Event) -> None:
        """Put a file below a root."""
        world, path = self.world, found["path"]
        file = world.files.get((uri, path))
        if file is None:
            file = world.files[uri, path] = SourceFile(uri, path, found.get("manner", "in_order"))
        self._put(file, found)
        world.counts[f"file {file.manner}"] += 1
        if found.get("unreadable"):
            world.unreadable[path] = world.now + found["unreadable"]
            world.counts["unreadable for a while"] += 1

    def _put(self, file: SourceFile, found: Event) -> None:
        world = self.world
        number = len(file.versions)
        rows = tuple(
            f"{file.source[-1]}:{file.path}@{number}#{i}" for i in range(found.get("rows", 1))
        )
        bad = tuple(f"?{file.path}@{number}#{i}" for i in range(found.get("bad_rows", 0)))
        flavour = found.get("flavour")
        lines = [*([flavour] if flavour else []), *rows, *bad]
        shift = found.get("shift")
        modified = None if shift is None else float(int(world.now + shift))
        if found.get("dated"):
            world.counts[f"time {found['dated']}"] += 1
        if flavour:
            world.counts["bad for good" if flavour == "bad" else "bad for old releases"] += 1
        world.bucket(file.source).put(file.path, "\n".join(lines).encode(), modified)
        file.versions.append(Version(number, world.now, rows, len(bad), flavour))
        file.deleted = None
        if world.settings.hints:
            world.hints.appeared(file.source, file.path)
        world.note(
            f"writer: {file.path} appears ({file.manner}{', ' + flavour if flavour else ''})"
        )

    def on_rewrite(self, found: Event) -> None:
        file = self._file(found["path"])
        if file is not None and file.deleted is None:
            self.world.counts["rewritten"] += 1
            self._put(file, Event(0, "write"))

    def on_export(self, found: Event) -> None:
        """Write the last files again, in place, as a producer does that repeats its export."""
        files = [file for file in self.world.files.values() if file.deleted is None]
        for file in files[-found["count"] :]:
            self._put(file, Event(0, "write"))
        self.world.counts["exported again"] += bool(files)

    def on_delete(self, found: Event) -> None:
        file = self._file(found["path"])
        if file is not None and file.deleted is None:
            self.world.counts["deleted"] += 1
            self.world.bucket(file.source).delete(file.path)
            file.deleted = self.world.now
            self.world.note(f"writer: {file.path} is deleted")

    def _file(self, path: str) -> SourceFile | None:
        return next((f for (_, name), f in self.world.files.items() if name == path), None)

    # -- processes and stores ------------------------------------------------------------

    def on_fault(self, found: Event) -> None:
        shot = Shot(found["fault"], found["place"], found["countdown"], found.get("secs", 0.0))
        if found.get("next"):
            self.next_shots[found["who"]].append(shot)
        else:
            self.latest(found["who"]).faults.armed.append(shot)

    def on_downtime(self, found: Event) -> None:
        self.down[found["who"]] = (found["secs"], bool(found.get("zombie")))

    def on_kill(self, found: Event) -> None:
        """Kill all running processes; paused ones stay paused for longer."""
        zombie, kind = bool(found.get("zombie")), found["who"]
        until = self.world.now + found["secs"]
        self.out_until[kind] = max(self.out_until[kind], until)
        for process in self.processes[kind]:
            if process.paused_until > self.world.now:
                process.paused_until += found["secs"]
            elif not process.is_over:
                self.world.counts["killed"] += 1
                self.down[kind] = (found["secs"], zombie)
                process.died(zombie=zombie)

    def on_rival(self, found: Event) -> None:
        """Beside one that is at work or paused; a daemon that is down stays down."""
        down = self.world.now < self.out_until[found["who"]]
        if not down and any(not p.is_over for p in self.processes[found["who"]]):
            self.world.counts["rival started"] += 1
            self.start(found["who"])

    def on_replica_killed(self, found: Event) -> None:
        self._replica(found).died()

    def on_replica_paused(self, found: Event) -> None:
        process = self._replica(found)
        self.world.counts["replica paused"] += 1
        self.world.note(f"{process.name} is paused for {found['secs']:.0f} s")
        process.paused_until = self.world.now + found["secs"]

    def on_replica_left(self, found: Event) -> None:
        """End a replica as SIGTERM does."""
        process = self._replica(found)
        self.world.note(f"{process.name} is to end")
        process.stop.set()

    def _replica(self, found: Event) -> Process:
        alive = [p for p in self.processes["blizzard"] if not p.is_over]
        return (alive or self.processes["blizzard"])[found["who"] % max(1, len(alive))]

    def on_clock(self, found: Event) -> None:
        self.world.counts["clock jumps"] += 1
        process = self.latest(found["who"])
        process.skew += found["secs"]
        self.world.note(f"{process.name}: its clock jumps by {found['secs']:.0f} s")

    def on_slow_job(self, found: Event) -> None:
        self.world.counts["slow jobs"] += 1
        self.world.slow_secs = found["secs"]

    def on_release(self, _found: Event) -> None:
        self.world.counts["releases"] += 1
        self.world.release = 2
        self.world.note("a new release is rolled out")

    def on_store_clock(self, found: Event) -> None:
        self.world.counts["store's clock put right"] += 1
        self.world.skew_before = (self.world.now, self.world.store_skew)
        self.world.store_skew = found["skew"]
        self.world.note("the store's clock is put right")
