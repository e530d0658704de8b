"""Systems that boards have: root file systems of their kinds, made of Debian's packages, and a vfat card."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profagent.boards.daemon_tree import chosen_version
from profagent.boards.layout import Layout
from profagent.boards.survey import BoardPython
from profagent.deploy.installed import fact_lines, installed_script, read_installed
from profagent.errors import ProfagentError
from profagent.ssh.remote import BoardFile, safely
from tests.board.deployed import mounted
from tests.board.sshd import busybox, toybox
from tests.integration.board import content, simulated
from tests.integration.host import profagent

if TYPE_CHECKING:
    from collections.abc import Callable

    from profagent.deploy.installed import InstalledFacts

CHECKOUT = Path(__file__).parents[2]
UBUNTU = 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 20.04.6 LTS"\n'
# The real one is in no package of Debian 12: it answers as that does.
PYTHON_38 = '#!/bin/sh\n[ "$1" = -V ] && echo Python 3.8.10\n'


class System:
    """A root file system. Its programs are Debian's, whose C library is where a board's is not looked for."""

    def __init__(self, root: Path, programs: Callable[[Path], Path], **files: str) -> None:
        assert os.geteuid() == 0, "another root needs root: run the tests as root"
        self.root = root
        for name in ("dev", "etc/param", "lib", "opt", "proc", "tmp", "usr/bin"):
            (root / name).mkdir(parents=True)
        os.mknod(root / "dev/null", 0o20666, os.makedev(1, 3))
        for name in {str(link.readlink()) for link in programs(root / "bin").iterdir()}:
            self._bring(name)
        for name, text in files.items():
            path = root / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)

    def _bring(self, program: str) -> None:
        shutil.copy(program, f"{self.root}{program}")
        shown = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        for path in (word for word in shown.split() if word.startswith("/")):
            directory = Path(path).parent
            where = directory if "ld-linux" in path else Path("/usr/lib") / directory.name
            (self.root / where.relative_to("/")).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, f"{self.root}{where}/")

    def run(self, script: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run a script of the board's shell there."""
        mounts = f"mount --bind {self.root} {self.root} && mount --rbind /proc {self.root}/proc"
        enter = [*mounted(mounts), "chroot", str(self.root), "/bin/sh", "-c"]
        environment = {"PATH": os.environ["PATH"]}
        command = [*enter, f"PATH=/bin\n{script}"]
        return subprocess.run(command, input=stdin, env=environment, capture_output=True, check=False)

    def facts(self) -> InstalledFacts:
        """What `deploy` sees there."""
        ran = self.run(installed_script(Layout(), ()))
        assert (ran.returncode, ran.stderr) == (0, b"")
        return read_installed(ran.stdout.decode())

    def check_files(self) -> None:
        """Files are replaced and read."""
        (self.root / "opt/acl.json").write_text("old")
        (self.root / "opt/acl.json").chmod(0o640)
        ran = self.run(safely("replace /opt/acl.json 3 600 7:8 follow && look /opt/acl.json"), b"new")
        assert (ran.returncode, ran.stderr) == (0, b"")
        assert BoardFile.of(ran.stdout) == BoardFile(b"new", 0o600, "7:8")


@pytest.fixture
def openharmony(tmp_path: Path) -> System:
    return System(tmp_path / "root", toybox, **{"lib__ld-musl-aarch64.so.1": "", "etc__param__ohos.para": ""})


async def refusal(facts: InstalledFacts) -> str:
    with pytest.raises(ProfagentError) as refused:
        await chosen_version(facts, "auto", None, None)
    assert "profagent bundle" in refused.value.hint
    return str(refused.value)


async def test_openharmony_small(openharmony: System) -> None:
    facts = openharmony.facts()
    assert (facts.system, facts.tools, facts.libc, facts.python) == ("OpenHarmony", "toybox", "musl", None)
    assert facts.is_writable
    assert facts.free_bytes
    assert "system   OpenHarmony, with the programs of toybox" in list(fact_lines(facts, facts.clock))  # type: ignore[arg-type]
    assert "has no Python 3.9 or later" in await refusal(facts)
    # One that was ported by hand finds no library of the wheels there.
    ported = replace(facts, python=BoardPython("aarch64", "/bin/python3", (3, 11), None), lacks=("libstdc++.so.6",))
    assert "without libstdc++.so.6" in await refusal(ported)
    openharmony.check_files()


# It is a daemon as far as the script can tell.
DAEMON = """#!/bin/sh
case $* in *--check-config*) exit 0 ;; esac
trap 'exit 0' TERM
while :; do sleep 1; done
"""


@pytest.mark.long
def test_the_init_script_needs_no_more_than_openharmony_has(openharmony: System) -> None:
    script, daemon = openharmony.root / "opt/profagentd.init", openharmony.root / "opt/profagent/current/bin/profagentd"
    for path, text in ((script, (CHECKOUT / "systemd/profagentd.init").read_text("utf-8")), (daemon, DAEMON)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        path.chmod(0o755)
    (openharmony.root / "var/log").mkdir(parents=True)
    for word, said, status in (
        ("start", "profagentd is started", 0),
        ("status", "profagentd is running, process ", 0),
        ("restart", "profagentd is stopped\nprofagentd is started", 0),
        ("stop", "profagentd is stopped", 0),
        ("status", "profagentd is not running", 3),
    ):
        # The watcher stays, and has its output open.
        ran = openharmony.run(f"sleep 1; /opt/profagentd.init {word} >/tmp/said 2>&1 </dev/null")
        told = (openharmony.root / "tmp/said").read_text("utf-8")
        assert (ran.returncode, told[: len(said)]) == (status, said), told
        assert "nobody watches" not in told


async def test_ubuntu_20_with_its_own_python(tmp_path: Path) -> None:
    ubuntu = System(tmp_path / "root", busybox, **{"etc__os-release": UBUNTU, "bin__python3": PYTHON_38})
    facts = ubuntu.facts()
    assert (facts.system, facts.python, facts.old_python) == ("Ubuntu 20.04.6 LTS", None, "3.8.10")
    assert "python   no Python 3.9 or later; Python 3.8.10 is too old" in list(fact_lines(facts, facts.clock))  # type: ignore[arg-type]
    assert "has Python 3.8.10, and not 3.9 or later" in await refusal(facts)


async def test_buildroot(tmp_path: Path) -> None:
    """Its C library may be another than those that wheels are for, which a Python does not tell."""
    release = 'PRETTY_NAME="Buildroot 2020.02"\n'
    buildroot = System(tmp_path / "root", busybox, **{"etc__os-release": release, "lib__ld64-uClibc.so.0": ""})
    facts = buildroot.facts()
    assert (facts.system, facts.tools, facts.libc) == ("Buildroot 2020.02", "busybox", "uClibc")
    own = replace(facts, python=BoardPython("aarch64", "/usr/bin/python3", (3, 11), None))
    assert "has uClibc, for which there are no wheels" in await refusal(own)
    buildroot.check_files()


def test_a_job_on_a_vfat_card(tmp_path: Path) -> None:
    """Names in another case, times of two seconds: the card was brought to the host."""
    (tmp_path / "root").mkdir()
    job = simulated(tmp_path / "root")
    card, back = tmp_path / "card", tmp_path / "back"
    back.mkdir()
    with card.open("wb") as file:
        file.truncate(64 << 20)
    commands: tuple[list[str | Path], ...] = (
        ["mkfs.vfat", card],
        ["mcopy", "-i", card, "-s", job, "::"],
        ["mcopy", "-i", card, "-sm", "::*", back],
    )
    for command in commands:
        assert shutil.which(str(command[0])), f"the tests need {command[0]}: apt-get install dosfstools mtools"
        subprocess.run(command, check=True, capture_output=True)
    (found,) = back.iterdir()
    assert content(found) == content(job)
    assert {path.stat().st_mtime % 2 for path in found.rglob("*") if path.is_file()} == {0.0}
    ended = profagent("import", "-dir", found, "--json", HOME=str(tmp_path))
    assert ended.code == 0, ended.err
