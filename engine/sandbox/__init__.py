"""The sandbox of worker processes: independent layers, applied before a process receives a file.

A layer that the kernel does not support is left out and reported.
"""

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from engine.sandbox import landlock, privileges, seccomp
from engine.sandbox.advice import advise as advise
from engine.sandbox.landlock import Rules
from engine.sandbox.landlock import allowed_path_rules as allowed_path_rules
from engine.sandbox.privileges import LOW_PRIORITY as LOW_PRIORITY
from engine.sandbox.privileges import lower_session_priority as lower_session_priority
from engine.sandbox.privileges import set_parent_death_signal as set_parent_death_signal
from engine.sandbox.rlimits import address_space as address_space
from engine.sandbox.rlimits import limit_memory as limit_memory
from engine.sandbox.rlimits import limit_process as limit_process
from engine.sandbox.rlimits import limit_task as limit_task
from engine.sandbox.rlimits import peak_memory as peak_memory
from engine.sandbox.selftest import run_selftest as run_selftest

ALWAYS = frozenset({"rlimits", "process_group", "parent_death_signal"})
"""The layers that remain when the sandbox is switched off."""

LAYERS = ALWAYS | {
    "network_namespace",
    "own_user",
    "few_threads",
    "no_capabilities",
    "undumpable",
    "no_new_privileges",
    "landlock",
    "seccomp",
}
"""The names of all layers."""


@dataclass(frozen=True)
class SandboxReport:
    """Which layers are active, and which checks of the self-test passed in a worker process."""

    layers: dict[str, bool]
    checks: dict[str, bool]

    @property
    def missing(self) -> list[str]:
        """The inactive layers and the failed checks."""
        return [name for name, passed in {**self.layers, **self.checks}.items() if not passed]

    @property
    def complete(self) -> bool:
        """Whether Landlock and seccomp are active and all checks passed, as the setting "required" demands."""
        return all((self.layers["landlock"], self.layers["seccomp"], *self.checks.values()))


def enter_network_namespace(layers: Collection[str]) -> dict[str, bool]:
    """Applies the layer that a fork server shares with its children. Call it before starting threads.

    Returns whether it is active.
    """
    return _apply({"network_namespace": privileges.enter_network_namespace}, layers)


def compile_filters(layers: Collection[str]) -> None:
    """Compiles the seccomp filters, so that forked processes only install them."""
    if "seccomp" in layers:
        with suppress(OSError):  # reported by `apply_layers`
            seccomp.compile_filters()


def apply_layers(
    layers: Collection[str], parent: int, path_rules: Rules, folder: str, *, several_processes: bool = False
) -> dict[str, bool]:
    """Applies the layers of this process, for good, and returns which are active.

    The process is killed when `parent` ends. It can access the paths of `path_rules`, and `folder` for writing. A
    program of `several_processes` has more threads, and system calls by which these talk to each other.
    """
    return {
        "rlimits": True,  # supported everywhere; set by the worker and for each task
        **_apply(
            {
                "process_group": privileges.start_process_group,
                "own_user": partial(privileges.switch_to_private_uid, folder),
                "few_threads": partial(privileges.limit_threads, several_processes=several_processes),
                "no_capabilities": privileges.drop_capabilities,
                "undumpable": privileges.set_undumpable,
                "parent_death_signal": partial(privileges.set_parent_death_signal, parent),
                "no_new_privileges": privileges.set_no_new_privs,
                "landlock": partial(landlock.restrict, path_rules, folder),
                "seccomp": partial(seccomp.restrict, several_processes=several_processes),
            },
            layers,
        ),
    }


def forbid_programs(active: Mapping[str, bool]) -> None:
    """Forbids starting programs and processes from here on, if seccomp is `active`. For tasks that need none."""
    if active["seccomp"]:
        seccomp.forbid_programs()


def _apply(functions: dict[str, Callable[[], None]], layers: Collection[str]) -> dict[str, bool]:
    return {name: name in layers and _succeeds(function) for name, function in functions.items()}


def _succeeds(function: Callable[[], None]) -> bool:
    try:
        function()
    except OSError:
        return False
    return True
