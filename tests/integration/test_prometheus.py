"""`record --metrics-listen`: what a real Prometheus makes of it, with the dashboard and the rules of docs/grafana."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from profagent.errors import UsageError
from profagent.link.session import State
from profagent.record.exposition import exposed
from tests.fakes.ports import own_port
from tests.integration.board import eventually, running
from tests.integration.host import Host, profagent, started

GRAFANA = Path(__file__).parents[2] / "docs" / "grafana"
RULES = GRAFANA / "alerts.yml"
CONFIG = """
global: {{ scrape_interval: 300ms, scrape_timeout: 300ms }}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: profagent
    static_configs: [{{ targets: ["{target}"] }}]
"""
# A capture that goes well has none of these, and a board need not have a thermometer.
QUIET = {"Losses", "Losses by reason", "Temperature"}


@contextmanager
def recording(workspace: Path) -> Iterator[tuple[Host, str]]:
    """A `record` of a simulated board that tells Prometheus, and where."""
    sources = ("--spools", "ops,marks,metrics", "--metrics-hz", "5")
    with running("--simulate", "--rate", "20", "--model", "resnet50", *sources) as board:
        arguments: tuple[str | Path, ...] = (
            "--board",
            board.address,
            "--workspace",
            workspace,
            "--metrics-listen",
            "127.0.0.1:0",
        )
        # It holds: the rules of docs/grafana are to be quiet.
        with started("record", *arguments, "--slo", "latency.p50 < 10s") as host:
            (line,) = host.err.until("metrics for Prometheus: ")
            yield host, line.rpartition(" ")[2]


def fetched(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples of a scrape by name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, []).append((each.labels, each.value))
    return found


def queries() -> Iterator[tuple[str, str, str]]:
    """Of the dashboard: the panel's title, the query, and how its series are called."""
    dashboard = json.loads((GRAFANA / "profagent.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]


def asked(prometheus: str, query: str) -> list[Any]:
    try:
        document = json.loads(fetched(f"{prometheus}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    except urllib.error.HTTPError as error:
        if error.code == 503:  # it is starting
            return []
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    found: list[Any] = document["data"]["result"]
    return found


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A Prometheus of our own that scrapes one target."""
    folder.mkdir()
    (folder / "prometheus.yml").write_text(CONFIG.format(rules=RULES, target=target))
    address = f"127.0.0.1:{own_port()}"
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=log, stdout=log)
        try:
            yield f"http://{address}"
        finally:
            process.kill()
            process.wait()


def is_scraped(address: str) -> bool:
    try:
        found = asked(address, "rate(profagent_latency_seconds_count[2s]) > 0 and on (board) profagent_metric")
    except OSError:
        return False
    return bool(found)


def test_every_panel_of_the_dashboard_shows_a_real_capture(tmp_path: Path) -> None:
    with recording(tmp_path / "ws") as (host, url):
        with prometheus(tmp_path / "prometheus", urllib.parse.urlsplit(url).netloc) as address:
            assert eventually(lambda: is_scraped(address), 30), fetched(url)
            for title, query, legend in queries():
                plain = query.replace("$board", ".*").replace("$__rate_interval", "2s")
                found = asked(address, plain)
                assert found or title in QUIET, plain
                names = set(re.findall(r"{{(\w+)}}", legend))
                assert all(names <= set(series["metric"]) for series in found), (title, found)
            rules = json.loads(fetched(f"{address}/api/v1/rules"))["data"]["groups"][0]["rules"]
            assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
            assert not [rule["name"] for rule in rules if rule["state"] == "firing"]
        scrape = fetched(url)
        ended = host.interrupt()
    text = RULES.read_text() + "".join(query for _, query, _ in queries())
    told = set(re.findall(r"^# TYPE (\w+)", scrape, re.MULTILINE))
    for name in set(re.findall(r"profagent_\w+", text)) - {"profagent"}:
        assert {name, re.sub("_(bucket|count|sum)$", "", name)} & told, name
    values = samples(scrape)
    (records,) = [value for labels, value in values["profagent_records_total"] if labels["kind"] == "aicore"]
    assert 0 < records <= int(re.findall(r"(\d[\d,]*) aicore", ended.out)[0].replace(",", ""))
    ((judged, exceeded),) = values["profagent_slo_exceeded"]
    assert (judged["slo"], judged["name"], exceeded) == ("latency.p50 < 10s", "resnet50", 0)
    ((labels, _),) = values["profagent_board_info"]
    assert labels["simulated"] == "true"
    with pytest.raises(OSError, match="refused"):
        fetched(url)


def test_a_board_that_was_refused_has_a_link_that_is_closed(tmp_path: Path) -> None:
    with (
        running("--root", tmp_path, "--identity", "twin") as first,
        running("--root", tmp_path, "--identity", "twin") as second,
        started(
            *("record", "--board", first.address, "--board", second.address),
            *("--workspace", tmp_path / "ws", "--metrics-listen", "127.0.0.1:0"),
        ) as host,
    ):
        url = host.err.until("metrics for Prometheus: ")[-1].rpartition(" ")[2]
        refused = host.err.until("has the identity")[-1].partition(": ")[0]

        def value(name: str, **labels: str) -> float:
            sought = {"board": refused, **labels}
            return next(each for labels, each in samples(fetched(url))[f"profagent_{name}"] if labels == sought)

        assert eventually(lambda: value("capturing") == 0)
        states = {state.value: value("link_state", state=state.value) for state in State}
        assert [state for state in states if states[state]] == ["closed"]
        assert (value("link_up"), value("links_lost_total")) == (0, 0)
        assert value("coverage_seconds", standing="connecting") > value("coverage_seconds", standing="covered") == 0


def test_a_capture_that_ended_while_others_go_on_is_told(tmp_path: Path) -> None:
    capturing = {"refused": "0x9", "goes on": "1x9"}
    series = [{"series": f'profagent_capturing{{board="{board}"}}', "values": capturing[board]} for board in capturing]
    told = 'ALERTS{alertname="ProfagentCaptureEnded", alertstate="firing", board="refused", severity="warning"}'
    firing = {"expr": 'ALERTS{alertstate="firing"}', "eval_time": "6m", "exp_samples": [{"labels": told, "value": 1}]}
    test = {"interval": "1m", "input_series": series, "promql_expr_test": [firing]}
    (tmp_path / "tests.yml").write_text(json.dumps({"rule_files": [str(RULES)], "tests": [test]}))
    ended = subprocess.run(
        ["promtool", "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "address", ["9464", ":9464", "127.0.0.1:http", "203.0.113.1:9464", "127.0.0.1:99999", "x" * 64 + ".local:9464"]
)
def test_an_address_that_cannot_be_is_named(address: str, tmp_path: Path) -> None:
    ended = profagent(
        "record", "--board", "127.0.0.1:1", "--workspace", tmp_path, "--metrics-listen", address, "--for", "1s"
    )
    assert ended.code == 2
    assert address in ended.err


@pytest.mark.parametrize(
    ("called", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost", 200),
        ("[::1]:{port}", 200),
        (socket.gethostname().upper(), 200),
        ("rebound.example:{port}", 421),
        ("127.0.0.1.example", 421),
        ("localhost.example:{port}", 421),
    ],
)
def test_the_page_is_for_who_calls_this_host_by_its_own_name(called: str, status: int) -> None:
    with exposed("127.0.0.1:0") as (_, url):
        port = urllib.parse.urlsplit(url).port
        connection = http.client.HTTPConnection("127.0.0.1", port or 0, timeout=10)
        connection.request("GET", "/metrics", headers={"Host": called.format(port=port)})
        answer = connection.getresponse()
        assert (answer.status, b"profagent_losses" in answer.read()) == (status, status == 200)
        connection.close()


def test_a_port_that_is_taken_is_named() -> None:
    with exposed("127.0.0.1:0") as (_, url):
        with pytest.raises(UsageError, match="cannot listen on"), exposed(urllib.parse.urlsplit(url).netloc):
            pass
        assert "# TYPE profagent_losses gauge" in fetched(url)
