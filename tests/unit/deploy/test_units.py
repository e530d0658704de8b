"""A service's files: those of systemd/ with a board's paths in place of the usual ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.deploy.units import (
    Layout,
    check_owner,
    every_service_file,
    installed_init,
    owned_init,
    removal_request,
    service,
)
from profagent.errors import UsageError

USUAL = Layout()
# Holds the usual prefix, which must not be replaced twice.
ELSEWHERE = Layout("/opt/profagent2")
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
        check_owner(ELSEWHERE, texts, "euler")
        if init != "none":
            with pytest.raises(UsageError, match="the service on euler starts the daemon below /opt/profagent2"):
                check_owner(USUAL, texts, "euler")
    assert installed_init(USUAL, {}) is None
    check_owner(USUAL, {}, "euler")


@pytest.mark.parametrize("root", ["/opt/profagent/versions/jobs", "/etc/profagent/x", "/var/lib/profagentd/jobs"])
def test_jobs_are_not_removed_with_the_rest(root: str) -> None:
    own = service("systemd", USUAL, (), deletes=False)
    with pytest.raises(UsageError, match=f"JOBs below {root} would be removed"):
        removal_request(USUAL, own, ("/root/jobs", root))
    assert removal_request(USUAL, own, ("/root/jobs", "/opt/profagent-jobs"))["act"] == "remove"


@pytest.mark.parametrize("prefix", ["relative", "/", "/a b", "/a'b", "/a/../b", "/a//b", "/a/"])
def test_a_prefix_is_plain(prefix: str) -> None:
    with pytest.raises(UsageError, match="--prefix"):
        Layout(prefix)
