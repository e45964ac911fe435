"""What `convertd doctor` says about layers that a system refuses."""

from pathlib import Path

import pytest

from engine.sandbox import LAYERS, advise


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n",
                "proc/sys/user/max_user_namespaces": "9\n",
            },
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0,",
        ),
        ({"proc/sys/kernel/unprivileged_userns_clone": "0\n"}, "sysctl -w kernel.unprivileged_userns_clone=1,"),
        ({"proc/sys/user/max_user_namespaces": "0\n"}, "sysctl -w user.max_user_namespaces=10000,"),
        ({"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "0\n"}, "--security-opt seccomp=unconfined"),
        ({}, "--security-opt seccomp=unconfined"),
    ],
)
def test_user_namespaces(tmp_path: Path, files: dict[str, str], expected: str) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    found = advise(["network_namespace", "few_threads"], tmp_path)

    assert [expected in text for text in found.values()] == [True, True]


def test_landlock_can_be_switched_off(tmp_path: Path) -> None:
    (tmp_path / "sys/kernel/security").mkdir(parents=True)
    modules = tmp_path / "sys/kernel/security/lsm"

    modules.write_text("capability,yama,apparmor")
    assert "lsm=landlock,capability,yama,apparmor" in advise(["landlock"], tmp_path)["landlock"]
    modules.write_text("capability,landlock")
    assert "Linux 5.13" in advise(["landlock"], tmp_path)["landlock"]


def test_only_missing_layers_have_advice(tmp_path: Path) -> None:
    assert advise([], tmp_path) == {}
    assert advise(["rlimits", "no sockets"], tmp_path) == {}
    assert advise(sorted(LAYERS), tmp_path).keys() == {
        "network_namespace",
        "few_threads",
        "own_user",
        "landlock",
        "seccomp",
    }
