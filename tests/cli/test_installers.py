"""How Quarterdeck was installed decides what upgrades it; `test_installing.py` has real ones."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from quarterdeck.cli.installers import (
    IMAGE_VARIABLE,
    InstallTraces,
    find_traces,
    install_command,
    installed_extras,
)
from quarterdeck.errors import CommandFailed

WHEEL = Path("/tmp/new ones/quarterdeck-0.2.0-py3-none-any.whl")
FILE = f"quarterdeck @ {WHEEL.as_uri()}"


@pytest.fixture
def traces(tmp_path: Path) -> InstallTraces:
    """Return the traces of pip in a virtual environment, with uv and pipx on PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("uv", "pipx"):
        (programs / name).touch(mode=0o755)
    prefix = tmp_path / "tools" / "quarterdeck"
    packages = prefix / "lib"
    packages.mkdir(parents=True)
    return InstallTraces(
        prefix=prefix,
        is_environment=True,
        executable="/env/bin/python",
        package_folder=packages,
        version="0.1.0",
        installer="pip",
        direct_url=None,
        is_in_user_site=False,
        is_externally_managed=False,
        has_pip=True,
        extras=(),
        environ={"PATH": str(programs)},
    )


def left(traces: InstallTraces, name: str, text: str = "") -> InstallTraces:
    (traces.prefix / name).write_text(text, encoding="utf-8")
    return traces


def steps(traces: InstallTraces, wheel: Path | None = None) -> list[list[str]]:
    return [list(step) for step in install_command(traces, wheel).steps]


RECEIPT = """
[tool]
requirements = [
    { name = "quarterdeck", extras = ["fast"] },
    { name = "rich", extras = ["jupyter"], specifier = ">=15" },
]
entrypoints = [{ name = "quarterdeck", install-path = "/home/me/bin/quarterdeck", from = "x" }]
"""


def test_a_tool_of_uv_is_upgraded_by_uv_where_it_is(traces: InstallTraces) -> None:
    traces = replace(left(traces, "uv-receipt.toml", RECEIPT), extras=("fast",), has_pip=False)
    assert steps(traces) == [["uv", "tool", "upgrade", "quarterdeck"]]
    assert install_command(traces, None).variables == {
        "UV_TOOL_DIR": str(traces.prefix.parent),
        "UV_TOOL_BIN_DIR": "/home/me/bin",
    }
    again = ["uv", "tool", "install", "--reinstall-package", "quarterdeck"]
    requirement = f"quarterdeck[fast] @ {WHEEL.as_uri()}"
    assert steps(traces, WHEEL) == [[*again, "--with", "rich[jupyter]>=15", requirement]]


def test_packages_beside_the_tool_that_no_index_has_are_not_lost(traces: InstallTraces) -> None:
    receipt = '[tool]\nrequirements = [{ name = "mine", path = "/mine" }]'
    with pytest.raises(CommandFailed, match=r"mine was installed with Quarterdeck from a file"):
        install_command(left(traces, "uv-receipt.toml", receipt), WHEEL)


def test_pipx_upgrades_what_it_installed_under_its_name(traces: InstallTraces) -> None:
    left(traces, "pipx_metadata.json", "{}")
    assert steps(traces) == [["pipx", "upgrade", "quarterdeck"]]
    assert steps(traces, WHEEL) == [["pipx", "install", "--force", FILE]]
    home = str(traces.prefix.parent.parent)
    assert install_command(traces, WHEEL).variables == {"PIPX_HOME": home}
    suffixed = replace(traces, prefix=traces.prefix.rename(f"{traces.prefix}-next"))
    suffixed = replace(suffixed, package_folder=suffixed.prefix / "lib")
    assert steps(suffixed, WHEEL) == [["pipx", "install", "--force", "--suffix", "-next", FILE]]
    whole = replace(traces, prefix=suffixed.prefix, package_folder=suffixed.package_folder)
    whole = replace(whole, environ={**whole.environ, "PIPX_GLOBAL_HOME": home})
    assert steps(whole)[0][-1] == "--global"


@pytest.mark.parametrize("is_environment", [True, False])
@pytest.mark.parametrize("is_in_user_site", [True, False])
def test_pip_upgrades_what_it_installed(
    traces: InstallTraces, *, is_environment: bool, is_in_user_site: bool
) -> None:
    traces = replace(traces, is_environment=is_environment, is_in_user_site=is_in_user_site)
    user = ["--user"] if is_in_user_site and not is_environment else []
    pip = ["/env/bin/python", "-m", "pip", "install", *user]
    assert steps(traces) == [[*pip, "--upgrade", "quarterdeck"]]
    assert steps(traces, WHEEL) == [[*pip, "--upgrade", FILE]]
    # Other code under the same number, which pip would leave as it is.
    again = [*pip, "--force-reinstall", "--no-deps", FILE]
    assert steps(replace(traces, version="0.2.0"), WHEEL) == [[*pip, "--upgrade", FILE], again]


def test_an_environment_without_pip_is_upgraded_by_uv(traces: InstallTraces) -> None:
    traces = replace(traces, has_pip=False, installer="uv")
    where = ["--python", "/env/bin/python"]
    reinstall = ["uv", "pip", "install", "--reinstall-package", "quarterdeck", *where, FILE]
    assert steps(traces, WHEEL) == [reinstall]


MANAGED = {"is_environment": False, "is_externally_managed": True}


@pytest.mark.parametrize("wheel", [None, WHEEL])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"environ": {IMAGE_VARIABLE: "1"}}, "container.*docker compose up"),
        ({"package_folder": None}, "no installer knows"),
        (
            {"direct_url": {"url": "file:///home/me/deck", "dir_info": {"editable": True}}},
            "clone /home/me/deck.*git pull and python3 dev.py setup",
        ),
        ({**MANAGED, "installer": "debian"}, "package of this system"),
        ({"is_environment": False, "installer": ""}, "package of this system"),
        (MANAGED, "PEP 668"),
        ({**MANAGED, "is_in_user_site": True}, "PEP 668"),
        ({"has_pip": False, "environ": {"PATH": "/nowhere"}}, "uv, which is not on PATH"),
    ],
)
def test_what_others_look_after_is_not_changed(
    traces: InstallTraces, wheel: Path | None, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(CommandFailed, match=reason):
        install_command(replace(traces, **changes), wheel)


@pytest.mark.parametrize("name", ["uv-receipt.toml", "pipx_metadata.json"])
def test_an_installer_that_is_gone_is_named(traces: InstallTraces, name: str) -> None:
    with pytest.raises(CommandFailed, match="not on PATH"):
        install_command(replace(left(traces, name), environ={"PATH": "/nowhere"}), WHEEL)


def test_what_came_from_a_file_is_not_replaced_by_what_an_index_has(
    traces: InstallTraces,
) -> None:
    """A package of the same name there may belong to another project."""
    traces = replace(traces, direct_url={"url": "file:///quarterdeck.whl", "archive_info": {}})
    with pytest.raises(CommandFailed, match=r"from file:///quarterdeck\.whl.*--from FILE"):
        install_command(traces, None)
    assert steps(traces, WHEEL)


def test_what_the_user_cannot_write_is_left_to_its_owner(traces: InstallTraces) -> None:
    traces = replace(traces, package_folder=Path("/proc/nothing"))  # root cannot write it either
    with pytest.raises(CommandFailed, match="as its owner, run: /env/bin/python -m pip"):
        install_command(traces, WHEEL)


def test_a_shown_command_can_be_pasted(traces: InstallTraces) -> None:
    assert shlex.split(str(install_command(traces, WHEEL))) == steps(traces, WHEEL)[0]


def test_an_extra_counts_if_all_its_packages_are_installed() -> None:
    requirements = (
        "anyio>=4",
        "pytest>=1; extra == 'tests'",
        'hypothesis ; python_version > "3" and extra == "tests"',
        "pytest; extra == 'more'",
        "no-such-package[x]>=2; extra == 'more'",
    )
    assert installed_extras(requirements) == ("tests",)


def test_this_clone_is_recognised() -> None:
    traces = find_traces({})
    assert traces.is_environment
    with pytest.raises(CommandFailed, match="runs from the clone"):
        install_command(traces, None)
