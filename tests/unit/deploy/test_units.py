"""A service's files: those of systemd/ with a board's paths in place of the usual ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.deploy.layout import Layout
from profagent.deploy.steps import removed
from profagent.deploy.units import (
    DROP_IN,
    check_drop_in,
    every_service_file,
    installed_init,
    left_behind,
    other_prefix,
    owned_init,
    service,
)
from profagent.errors import UsageError

USUAL = Layout.of()
# Holds the usual prefix, which must not be replaced twice.
ELSEWHERE = Layout.of("/opt/profagent2")
UNITS = Path(__file__).parents[3] / "systemd"
UNIT = "/etc/systemd/system/profagentd.service"


def test_the_usual_files_are_those_of_the_checkout() -> None:
    found = service("systemd", USUAL, (), deletes=False).files
    assert found[UNIT] == ((UNITS / "profagentd.service").read_text(), 0o644)
    script = service("initd", USUAL, (), deletes=False).files
    assert script == {"/etc/init.d/profagentd": ((UNITS / "profagentd.init").read_text(), 0o755)}


@pytest.mark.parametrize("init", ["systemd", "initd", "none"])
def test_elsewhere_nothing_of_the_usual_paths_is_left(init: str) -> None:
    for text, _ in service(init, ELSEWHERE, (), deletes=False).files.values():
        for usual in ("/opt/profagent/", " /etc/profagent", "RUN=/var/run", "LOG=/var/log"):
            assert usual not in text
    unit = service("systemd", ELSEWHERE, (), deletes=False).files[UNIT][0]
    assert (
        "ExecStart=/opt/profagent2/current/bin/profagentd --config /opt/profagent2/etc/profagentd.toml"
        " --roots-d /opt/profagent2/etc/roots.d\n" in unit
    )
    script = service("none", ELSEWHERE, (), deletes=False).files["/opt/profagent2/profagentd.init"][0]
    assert "\nPREFIX=/opt/profagent2\n" in script
    assert "\nLOG=/opt/profagent2/profagentd.log\n" in script
    assert 'mkdir -p "$RUN" /opt/profagent2/state' in script


def test_only_who_deletes_may_write_where_jobs_are() -> None:
    drop_in = f"{UNIT}.d/retention.conf"
    deleting = service("systemd", USUAL, ("/a b", '/100%"'), deletes=True)
    assert 'ReadWritePaths="-/a b" "-/100%%\\""\n' in deleting.files[drop_in][0]
    keeping = service("systemd", USUAL, ("/a",), deletes=False)
    assert drop_in not in keeping.files
    assert keeping.unwanted == (drop_in,)


def test_a_service_is_known_by_its_files() -> None:
    for init in ("systemd", "initd", "none"):
        own = service(init, ELSEWHERE, (), deletes=True).files
        assert set(own) <= set(every_service_file(ELSEWHERE))
        texts = {path: text for path, (text, _) in own.items()}
        assert installed_init(ELSEWHERE, texts) == owned_init(ELSEWHERE, texts) == init
        assert owned_init(USUAL, texts) is None
        assert other_prefix(ELSEWHERE, texts) is None
        assert other_prefix(USUAL, texts) == (None if init == "none" else "/opt/profagent2")
    assert installed_init(USUAL, {}) is None
    assert other_prefix(USUAL, {}) is None
    assert other_prefix(USUAL, {UNIT: "[Service]"}) == "a place that cannot be told"


@pytest.mark.parametrize(("init", "is_kept"), [("systemd", True), ("initd", False)])
def test_what_a_replaced_deployment_has_left_is_removed_beside_the_service(init: str, is_kept: bool) -> None:
    texts = {path: text for path, (text, _) in service(init, ELSEWHERE, (), deletes=False).files.items()}
    assert left_behind(ELSEWHERE, texts) is None
    assert left_behind(USUAL, {}) is None
    left = left_behind(USUAL, texts)
    assert left is not None
    commands = removed(USUAL, *left).split()
    # systemd keeps the state there, whatever the prefix.
    assert ("/var/lib/profagentd" not in commands) == is_kept
    assert "/var/log/profagentd.log" in commands
    assert not [word for word in commands if word.startswith(("/etc/systemd", "/etc/init.d", "systemctl"))]
    with pytest.raises(UsageError, match="cannot be told"):
        left_behind(USUAL, {UNIT: "[Service]"})


@pytest.mark.parametrize("prefix", ["relative", "/", "/a b", "/a'b", "/a/../b", "/a//b", "/a/"])
def test_a_prefix_is_plain(prefix: str) -> None:
    with pytest.raises(UsageError, match="--prefix"):
        Layout.of(prefix)


def test_a_drop_in_that_somebody_has_changed_is_left_to_them() -> None:
    deleting, keeping = (service("systemd", USUAL, ("/a",), deletes=deletes) for deletes in (True, False))
    made, _ = deleting.files[DROP_IN]
    other, _ = service("systemd", USUAL, ("/b",), deletes=True).files[DROP_IN]
    for there in (None, made, other):
        files = {} if there is None else {DROP_IN: there}
        check_drop_in(files, deleting, "euler")
        check_drop_in(files, keeping, "euler")
    for there in (f"{made}ReadWritePaths=/c\n", made.replace('"-/a"', '"-/a" "-/c"'), "[Service]\n"):
        files = {DROP_IN: there}
        for own in (deleting, keeping):
            with pytest.raises(UsageError, match="was changed by hand") as refused:
                check_drop_in(files, own, "euler")
            assert "into another file" in refused.value.hint
        check_drop_in(files, service("initd", USUAL, (), deletes=True), "euler")
