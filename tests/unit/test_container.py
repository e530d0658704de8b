"""The image of the host side, and what stands beside it: nothing here is built, every name in it is looked up."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from profagent.record.cli import command as record
from profagent.store.workspace import VARIABLE

ROOT = Path(__file__).parents[2]
IGNORED = ROOT / ".containerignore"
SITE = "/opt/profagent/lib/python3.11/site-packages"


@pytest.fixture
def steps() -> list[tuple[str, str]]:
    """The Containerfile's instructions, each with the rest of its line."""
    text = (ROOT / "Containerfile").read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines)]


@pytest.fixture
def services() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    return dict(found["services"])


def mounted(service: dict[str, Any]) -> dict[str, str]:
    """Where files of this repository are in a service's container, with the files."""
    parts = (volume.split(":") for volume in service["volumes"] if volume.startswith("./"))
    return {inside: file for file, inside, _ in parts}


def test_the_image_has_pinned_packages_and_the_whole_host_side(steps: list[tuple[str, str]]) -> None:
    copied = {
        source: target
        for name, rest in steps
        if name == "COPY"
        for *sources, target in [rest.split()]
        for source in sources
    }
    assert all((ROOT / source).exists() for source in copied)
    passed = {line[1:] for line in IGNORED.read_text("utf-8").splitlines() if line.startswith("!")}
    assert passed == copied.keys()
    parts = {Path(target).name for source, target in copied.items() if target.startswith(SITE)}
    assert parts == {"profagent", "profagentd", "profagent_app", "profagent_wire"}
    assert (ROOT / "tools" / "make_venv").read_text("utf-8").count("--require-hashes") == 1
    texts = [file.read_text("utf-8") for file in (ROOT / "Containerfile", IGNORED, ROOT / "tools" / "make_venv")]
    assert not any("://" in text for text in texts), "where packages come from is the builder's own matter"


def test_it_runs_as_nobody_in_particular_and_keeps_all_in_one_volume(steps: list[tuple[str, str]]) -> None:
    by_name = dict(steps)
    (volume,) = (rest for name, rest in steps if name == "VOLUME")
    variables = dict(word.split("=") for word in by_name["ENV"].split())
    assert variables[VARIABLE] == volume
    assert variables["XDG_CONFIG_HOME"].startswith(f"{volume}/")
    assert by_name["USER"] in " ".join(rest for name, rest in steps if name == "RUN" and "useradd" in rest).split()
    (program,) = json.loads(by_name["ENTRYPOINT"])
    assert any(name == "RUN" and f"> {program}" in rest for name, rest in steps)
    assert by_name["STOPSIGNAL"] == "SIGINT"


def test_prometheus_asks_the_capture_by_the_name_that_it_answers_to(services: dict[str, Any]) -> None:
    capture, prometheus = services["profagent"], services["prometheus"]
    verb, *words = shlex.split(
        capture["command"].replace("${PROFAGENT_GROUP:?name a group of profagent boards}", "rack3")
    )
    assert verb == "record"
    chosen = record.make_context(verb, words).params
    assert chosen["groups"] == ("rack3",)
    files = mounted(prometheus)
    settings = yaml.safe_load((ROOT / files["/etc/prometheus/prometheus.yml"]).read_text("utf-8"))
    (scraped,) = settings["scrape_configs"]
    port = chosen["metrics_listen"].rpartition(":")[2]
    assert scraped["static_configs"] == [{"targets": [f"{capture['hostname']}:{port}"]}]
    assert [f"/etc/prometheus/{rules}" in files for rules in settings["rule_files"]] == [True]
    assert "workspace:/workspace" in capture["volumes"]


def test_grafana_finds_its_data_source_and_the_dashboard(services: dict[str, Any]) -> None:
    files = mounted(services["grafana"])
    told = [yaml.safe_load((ROOT / file).read_text("utf-8")) for file in files.values() if file.endswith(".yml")]
    (source,) = (each for found in told for each in found.get("datasources", ()))
    (provider,) = (each for found in told for each in found.get("providers", ()))
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (dashboard,) = (Path(inside) for inside in files if inside.endswith(".json"))
    assert provider["options"]["path"] == str(dashboard.parent)
    assert all((ROOT / file).is_file() for service in services.values() for file in mounted(service).values())
