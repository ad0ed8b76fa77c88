"""All targets, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    answers,
    checkpoints,
    configuration,
    delta,
    footers,
    letters,
    lines,
    notifications,
    records,
)

MODULES = (
    lines,
    records,
    footers,
    delta,
    checkpoints,
    letters,
    configuration,
    answers,
    notifications,
)
TARGETS: dict[str, Target] = {
    target.name: target for module in MODULES for target in module.TARGETS
}
