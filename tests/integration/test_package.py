"""The distribution: its wheel, built from the source distribution, runs in an environment without this checkout."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
IMPORT_ROOTS = ("protos/profagent_wire", "daemon/profagentd", "daemon/profagent_app", "agent/profagent")
NAME = f"profagent-{PROJECT['version']}"


def files_below(folder: Path, start: Path) -> set[str]:
    """Return the names of the files of a checkout's folder, relative to `start`."""
    return {
        path.relative_to(start).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the source distribution."""
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("sdist")), versions=["standard"])
    return Path(built)


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Return the wheel that the source distribution gives."""
    with tarfile.open(sdist) as archive:
        needed = [each for each in archive if not each.name.startswith(f"{NAME}/tests/")]
        archive.extractall(sdist.parent, needed, filter="data")
    source = sdist.parent / NAME
    (built,) = WheelBuilder(str(source)).build(directory=str(sdist.parent), versions=["standard"])
    return Path(built)


def test_the_source_distribution_has_what_make_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        members = archive.getnames()
    assert all(name.startswith(f"{NAME}/") for name in members)
    names = {name.removeprefix(f"{NAME}/") for name in members}
    folders = ("systemd", "man", "docs", "tools", "requirements", "tests/unit", "tests/golden")
    assert {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml"} <= names
    assert {name for folder in folders for name in files_below(ROOT / folder, ROOT)} <= names


def test_the_wheel_has_every_file_of_the_packages_and_none_beside_them(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        units = files_below(ROOT / "systemd", ROOT)
        assert all(archive.read(f"profagent/deploy/{unit}") == (ROOT / unit).read_bytes() for unit in units)
        for page in ("profagent.1", "profagentd.8"):
            installed = archive.read(f"{NAME}.data/data/share/man/man{page[-1]}/{page}")
            assert installed == (ROOT / "man" / page).read_bytes()
        metadata = message_from_bytes(archive.read(f"{NAME}.dist-info/METADATA"))
        entry_points = archive.read(f"{NAME}.dist-info/entry_points.txt").decode()
    wanted = {name for root in IMPORT_ROOTS for name in files_below(ROOT / root, (ROOT / root).parent)}
    assert {"profagent/store/schema.sql", "profagent_wire/v1/board.proto", "profagentd/py.typed"} <= wanted
    assert {Path(name).suffix for name in wanted} >= {".css", ".js", ".sql", ".proto", ".toml"}
    assert "systemd/profagentd.init" in units
    assert wanted <= names
    beside = {f"{NAME}.dist-info", f"{NAME}.data"}
    assert {name.partition("/")[0] for name in names} == {Path(root).name for root in IMPORT_ROOTS} | beside
    assert dict(re.findall(r"^(\S+) = (\S+)$", entry_points, re.MULTILINE)) == PROJECT["scripts"]
    required = {
        re.split(r"[<>=;! ]", text)[0] for text in metadata.get_all("Requires-Dist", []) if "extra ==" not in text
    }
    assert required == {re.split(r"[<>=;! ]", text)[0] for text in PROJECT["dependencies"]}


def test_the_installed_wheel_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    install = ["install", "--quiet", "--no-deps", "--no-index", "--no-compile", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(python), *install], check=True)
    # The dependencies are those of this environment. Python does not follow its .pth file, which leads to the checkout.
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", "utf-8")
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "PROFAGENT", "XDG"))}
    variables |= {"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}

    def run(program: str, *arguments: str) -> str:
        ran = subprocess.run(
            [str(environment / "bin" / program), *arguments],
            env=variables,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert (environment / "share" / "man" / "man1" / "profagent.1").exists()
    assert run("profagent", "--version").split()[-1] == PROJECT["version"]
    assert run("profagentd", "--version").split()[-1] == PROJECT["version"]
    origins = run(
        "python", "-c", "import profagent, profagentd; print(profagent.__file__, profagentd.__file__)"
    ).split()
    assert all(Path(origin).is_relative_to(packages) for origin in origins)
    assert "[simulated]: complete" in run("profagent", "demo", "--for", "0.5s", "--model", "resnet50")
    assert list(tmp_path.glob("profagent-demo-*/exports/session-1/report.html"))
