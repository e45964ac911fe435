"""Advice for administrators about layers that are not active on this system."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

_NAMESPACES = ("network_namespace", "few_threads")
_SYSCTLS: Mapping[str, tuple[str, str, str]] = MappingProxyType(  # the value that refuses, the one that allows, and why
    {
        "kernel.apparmor_restrict_unprivileged_userns": (
            "1",
            "0",
            "AppArmor refuses user namespaces, as Ubuntu has it since 23.10",
        ),
        "kernel.unprivileged_userns_clone": (
            "0",
            "1",
            "the kernel refuses user namespaces, as older releases of Debian",
        ),
        "user.max_user_namespaces": ("0", "10000", "the kernel allows no user namespaces"),
    }
)
_CONTAINER = (
    "the kernel or the container refuses unshare; the filter of container engines does, so run the container with "
    "--security-opt seccomp=unconfined, as config/compose.yml does: each task has a stricter filter of its own"
)


def advise(missing: Iterable[str], system: Path = Path("/")) -> dict[str, str]:
    """Returns how to allow each missing layer that can be allowed. `system` is the folder with /proc and /sys."""
    found = {name: _advise(name, system) for name in missing}
    return {name: text for name, text in found.items() if text}


def _advise(layer: str, system: Path) -> str:
    if layer in _NAMESPACES:
        return _about_namespaces(system)
    if layer == "landlock":
        modules = _read(system / "sys/kernel/security/lsm")
        if modules and "landlock" not in modules.split(","):
            return f"Landlock is switched off; start the kernel with lsm=landlock,{modules}"
        return f"needs Linux 5.13 or newer with Landlock; this is {os.uname().release}"
    if layer == "seccomp":
        return "needs libseccomp: apt-get install libseccomp2"
    return "only processes of root have it; the other layers do without" if layer == "own_user" else ""


def _about_namespaces(system: Path) -> str:
    for name, (refused, allowed, reason) in _SYSCTLS.items():
        if _read(system / "proc/sys" / name.replace(".", "/")) == refused:
            line = f"{name}={allowed}"
            return f"{reason}; to allow them: sysctl -w {line}, and this line in /etc/sysctl.d/60-convertd.conf"
    return _CONTAINER


def _read(path: Path) -> str:
    """The content of a file, without blanks at its ends; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
