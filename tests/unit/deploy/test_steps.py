"""What the shell commands of a deployment remove, in a directory that is not theirs alone."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from profagent.deploy.layout import Layout
from profagent.deploy.steps import cleared_versions, lost_root, made_directories, named_roots, removed, settled
from profagent.deploy.units import service

OLD, KEPT, PART = "1.0-0123abcd", "1.1-00000000", "1.2-ffffffff.part"
FOREIGN = ("mine", "linux-deadbeef", "notes.part")


def sh(command: str) -> str:
    return subprocess.run(["sh", "-c", command], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A prefix with versions, and with directories of someone else's."""
    for name in (OLD, KEPT, PART, *FOREIGN):
        (tmp_path / "p/versions" / name).mkdir(parents=True)
    for name in (OLD, KEPT):
        (tmp_path / "p/versions" / name / "manifest.json").touch()
    (tmp_path / "p/run/mine").mkdir(parents=True)
    return Layout.of(str(tmp_path / "p"))


def versions(layout: Layout) -> set[str]:
    return {path.name for path in Path(layout.versions).iterdir()}


def test_only_versions_are_cleared(layout: Layout) -> None:
    sh(cleared_versions(layout, KEPT, ""))
    assert versions(layout) == {KEPT, *FOREIGN}


def test_what_is_removed_is_what_was_deployed(layout: Layout) -> None:
    own = replace(service("none", layout, (), deletes=False), forget=":")
    Path(layout.run, "profagentd.pid").touch()
    sh(removed(layout, own))
    assert versions(layout) == set(FOREIGN)
    assert [path.name for path in Path(layout.run).iterdir()] == ["mine"]


def test_directories_for_the_service_that_were_made_are_removed_when_they_are_empty(
    layout: Layout, tmp_path: Path
) -> None:
    etc = tmp_path / "etc"
    (etc / "there").mkdir(parents=True)
    files = {f"{etc}/{name}/profagentd.conf": ("", 0o644) for name in ("there", "made", "shared")}
    own = replace(service("none", layout, (), deletes=False), forget=":", files=files)
    for _ in range(2):
        sh(made_directories(layout, own))
    assert (etc / "made").is_dir()
    (etc / "shared/mine").touch()
    sh(removed(layout, own))
    assert sorted(path.name for path in etc.iterdir()) == ["shared", "there"]
    assert not Path(layout.made).exists()


def test_a_version_is_on_the_disk_before_it_has_its_name(layout: Layout, tmp_path: Path) -> None:
    part, log = Path(layout.versions, PART), tmp_path / "log"
    (tmp_path / "sync").write_text(f"#!/bin/sh\nls -d {part} >{log}\n")
    (tmp_path / "sync").chmod(0o755)
    sh(f"PATH={tmp_path}:$PATH; {settled(layout, PART.removesuffix('.part'))}")
    assert log.read_text() == f"{part}\n"
    assert not part.exists()
    assert part.with_suffix("").is_dir()


def test_a_root_among_what_is_removed_is_found() -> None:
    usual, elsewhere = Layout.of(), Layout.of("/data")
    own = service("systemd", elsewhere, (), deletes=False)
    for lost in ("/data/versions/jobs", "/data/state", "/data/etc/jobs", "/var/lib/profagentd/jobs"):
        assert lost_root(elsewhere, own, ["/data/run/jobs", lost]) == lost
    assert lost_root(elsewhere, own, ["", "/data/run/jobs", "/data/states", "/data"]) is None
    assert lost_root(usual, own, ["/var/lib/profagentd2"]) is None


def test_programs_name_roots() -> None:
    files = {
        "/etc/profagent/roots.d/b.conf": "/b c \n\n# /no\nrelative",
        "/etc/profagent/roots.d/a.conf": "/a\n",
        "/etc/profagent/profagentd.toml": "/toml\n",
    }
    assert named_roots(files, Layout.of()) == ("/a", "/b c")
