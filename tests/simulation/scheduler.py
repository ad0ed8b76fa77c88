"""Scheduler: simulated threads as greenlets, with one virtual time and one seed.

A task gives up control in `Scheduler.sleep`, which every I/O calls before its effect. No other
task sees the work between two effects. The task with the earliest wake-up runs next. Delays are
drawn from the seed: mostly milliseconds, at times seconds, so that any two tasks meet in any order.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

from greenlet import getcurrent, greenlet

# A run that makes more steps than this does not come to an end.
MAX_STEPS = 80_000


class Died(BaseException):
    """Death of the process. Not an Exception, so that nothing handles it."""


class Endless(Exception):
    """The run made more steps than it may, so some task loops for ever."""


class Owner:
    """Tasks that live, die and pause together: a process, or the executors of its jobs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        self.paused_until = 0.0
        self.tasks: dict[Task, None] = {}


class Waitable:
    """A thing that ends once, and for which tasks can wait."""

    def __init__(self) -> None:
        self.done = False
        self.waiters: list[Task] = []


class Task(Waitable):
    """One simulated thread of an owner."""

    def __init__(self, owner: Owner, fn: Callable[[], Any]) -> None:
        super().__init__()
        self.owner = owner
        self.fn = fn
        self.result: Any = None
        self.error: BaseException | None = None
        self.body: greenlet | None = None


class Scheduler:
    """The hub: it holds the time and chooses the next task."""

    def __init__(self, chance: random.Random, start: float) -> None:
        self.now = start
        self.max_steps = MAX_STEPS
        self.steps = 0
        self.current: Task | None = None
        self._chance = chance
        self._queue: list[tuple[float, int, Task]] = []
        self._count = 0
        self._hub: greenlet = getcurrent()

    def spawn(self, owner: Owner, fn: Callable[[], Any]) -> Task:
        """Start a new task, which begins when it is its turn."""
        task = Task(owner, fn)
        task.body = greenlet(lambda: self._life(task), self._hub)
        owner.tasks[task] = None
        self._push(task, self.now)
        return task

    def io(self) -> None:
        """Let other tasks run for the time of an I/O: milliseconds, at times seconds."""
        draw = self._chance.random()
        self.sleep(draw * 0.02 if draw < 0.985 else (draw - 0.985) * 200.0)

    def sleep(self, secs: float) -> None:
        """Give up control. A dead owner's task never comes back from here."""
        task = self.current
        if task is None:  # a check after the run reads the store, too
            return
        if task.owner.dead or task.body is not getcurrent():
            raise Died  # also in what the garbage collector ends, in the middle of another task
        self._push(task, self.now + secs)
        self._hub.switch()
        if task.owner.dead:
            raise Died

    def wait_for(self, other: Waitable) -> None:
        """Wait until the other is done."""
        task = self.current
        while not other.done:
            if task is None or task.owner.dead or task.body is not getcurrent():
                raise Died
            other.waiters.append(task)
            self._hub.switch()

    def finish(self, other: Waitable) -> None:
        """Mark the task as done and wake the tasks that wait for it."""
        other.done = True
        for waiter in other.waiters:
            self._push(waiter, self.now)
        other.waiters.clear()

    def kill(self, owner: Owner) -> None:
        """End all tasks of an owner; each is woken and finds itself dead."""
        owner.dead = True
        owner.paused_until = 0.0
        for task in owner.tasks:
            self._push(task, self.now)

    def wake(self, owner: Owner) -> None:
        """End its pause."""
        owner.paused_until = 0.0
        for task in owner.tasks:
            self._push(task, self.now)

    def run(self, until: float) -> None:
        """Run tasks until the time is ``until`` or no task is left."""
        queue = self._queue
        while queue and queue[0][0] <= until:
            wake, _, task = heapq.heappop(queue)
            body = task.body
            if task.done or body is None:
                continue
            self.now = max(self.now, wake)
            if task.owner.paused_until > self.now:
                self._push(task, task.owner.paused_until)
                continue
            self.steps += 1
            if self.steps > self.max_steps:
                raise Endless(f"{self.max_steps} steps")
            self.current = task
            body.switch()
            self.current = None
        self.now = max(self.now, until)

    def end(self) -> None:
        """End all tasks."""
        while self._queue:
            _, _, task = heapq.heappop(self._queue)
            if not task.done and task.body is not None:
                task.owner.dead = True
                self.current = task
                task.body.switch()
                self.current = None

    def _push(self, task: Task, at: float) -> None:
        self._count += 1
        heapq.heappush(self._queue, (at, self._count, task))

    def _life(self, task: Task) -> None:
        try:
            if not task.owner.dead:
                task.result = task.fn()
        except BaseException as error:  # a thread's error ends in the thread
            task.error = error
        finally:
            task.owner.tasks.pop(task, None)
            self.finish(task)


class Future(Waitable):
    """Stand-in for `concurrent.futures.Future` with `result` only."""

    def __init__(self, scheduler: Scheduler, fn: Callable[[], Any]) -> None:
        super().__init__()
        self._scheduler = scheduler
        self._fn = fn
        self._value: Any = None
        self._error: BaseException | None = None

    def run(self) -> None:
        try:
            self._value = self._fn()
        except BaseException as error:
            self._error = error
        self._scheduler.finish(self)

    def result(self, _timeout: float | None = None) -> Any:
        self._scheduler.wait_for(self)
        if self._error is not None:
            raise self._error
        return self._value


class Executor:
    """A thread pool of greenlets. ``map`` begins everything at once, as the real one does."""

    def __init__(self, scheduler: Scheduler, workers: int = 8) -> None:
        self._scheduler = scheduler
        self._workers = workers
        self._waiting: deque[Future] = deque()
        self._tasks: list[Task] = []

    def submit(self, fn: Callable[..., Any], *arguments: Any) -> Future:
        scheduler = self._scheduler
        future = Future(scheduler, lambda: fn(*arguments))
        current = scheduler.current
        if current is None:
            future.run()
            return future
        self._waiting.append(future)
        self._tasks = [task for task in self._tasks if not task.done]
        if len(self._tasks) < self._workers:
            self._tasks.append(scheduler.spawn(current.owner, self._work))
        return future

    def map(self, fn: Callable[[Any], Any], *items: Iterable[Any]) -> Iterator[Any]:
        found = list(zip(*items, strict=False))
        if len(found) <= 1:
            return iter([fn(*one) for one in found])
        futures = [self.submit(fn, *one) for one in found]
        return (future.result() for future in futures)

    def shutdown(self, wait: bool = True) -> None:
        if wait:
            for task in self._tasks:
                self._scheduler.wait_for(task)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        if kind is None or not issubclass(kind, Died):
            self.shutdown()

    def _work(self) -> None:
        while self._waiting:
            self._waiting.popleft().run()
