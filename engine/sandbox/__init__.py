"""The walls of a job's process, put up before it gets to see a file. What a kernel lacks is left out, and told."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

from engine.sandbox import landlock, privileges, seccomp
from engine.sandbox.allowed_paths import known_places
from engine.sandbox.landlock import Rules
from engine.sandbox.rlimits import addresses, bound, bound_memory, peak_memory
from engine.sandbox.selftest import attempt

__all__ = [
    "ALWAYS",
    "LAYERS",
    "SandboxReport",
    "addresses",
    "apply_layers",
    "attempt",
    "bound",
    "bound_memory",
    "enter_network_namespace",
    "forbid_programs",
    "known_places",
    "peak_memory",
]

ALWAYS = frozenset({"rlimits", "session", "parent_death_signal"})
"""The layers that stay when the sandbox is switched off."""

LAYERS = ALWAYS | {
    *("network_namespace", "own_user", "few_threads", "no_capabilities", "undumpable"),
    *("no_new_privileges", "landlock", "seccomp"),
}
"""All layers by name."""


@dataclass(frozen=True)
class SandboxReport:
    """The layers that this system has, and what a job's process proved by trying."""

    layers: dict[str, bool]
    proofs: dict[str, bool]

    def common(self, other: SandboxReport) -> SandboxReport:
        """What holds here and there."""
        return SandboxReport(_common(self.layers, other.layers), _common(self.proofs, other.proofs))

    @property
    def missing(self) -> list[str]:
        """What is not there, or did not hold."""
        return [name for name, held in {**self.layers, **self.proofs}.items() if not held]

    @property
    def complete(self) -> bool:
        """Whether a hostile file that takes over its process finds no way out: the kernel's two filters hold."""
        return all((self.layers["landlock"], self.layers["seccomp"], *self.proofs.values()))


def _common(here: Mapping[str, bool], there: Mapping[str, bool]) -> dict[str, bool]:
    return {name: held and there.get(name, False) for name, held in here.items()}


def enter_network_namespace(layers: Collection[str]) -> dict[str, bool]:
    """The walls that a process and all its children share; whether each holds. It wants no threads yet."""
    return _put_up({"network_namespace": privileges.leave_network}, layers)


def apply_layers(layers: Collection[str], parent: int, places: Rules, own: str) -> dict[str, bool]:
    """Puts up this process's walls; whether each holds.

    It dies with `parent`, and has no files but in those places and in the folder `own`, where alone it writes.
    """
    return {
        "rlimits": True,  # which every system has; the job tells them
        **_put_up(
            {
                "session": privileges.begin_session,
                "own_user": partial(privileges.become_nobody, own),
                "few_threads": privileges.bound_threads,
                "no_capabilities": privileges.drop_capabilities,
                "undumpable": privileges.hide,
                "parent_death_signal": partial(privileges.die_with, parent),
                "no_new_privileges": privileges.renounce_privileges,
                "landlock": partial(landlock.restrict, places, own),
                "seccomp": seccomp.restrict,
            },
            layers,
        ),
    }


def forbid_programs(held: Mapping[str, bool]) -> None:
    """For jobs that run none: no program and no other process can be started from here on."""
    if held["seccomp"]:
        seccomp.forbid_programs()


def _put_up(walls: dict[str, Callable[[], None]], layers: Collection[str]) -> dict[str, bool]:
    return {name: name in layers and _holds(wall) for name, wall in walls.items()}


def _holds(wall: Callable[[], None]) -> bool:
    try:
        wall()
    except OSError:
        return False
    return True
