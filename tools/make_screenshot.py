"""Take the README's picture of a report: the manual's worked example, simulated, in headless Chromium.

Run it with the environment of `make check` (`make screenshot`).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from profagent.cli.main import run
from profagentd.simulate.npu import Npu
from profagentd.simulate.run import SimulationOptions

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "report.png"
START_US = 1_767_225_600_000_000
STEP_US = 40_000
INFERENCES = 60
LARGEST_BYTES = 200_000


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as name:
        job, page = _job(Path(name)), Path(name) / "report.html"
        if run(["report", str(job), "--lang", "en", "-o", str(page)]):
            sys.exit("no report, no picture")
        PICTURE.parent.mkdir(exist_ok=True)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            opened = browser.new_page(viewport={"width": 1280, "height": 960})
            opened.goto(page.as_uri())
            opened.screenshot(path=PICTURE)
            browser.close()
    size = PICTURE.stat().st_size
    if size > LARGEST_BYTES:
        sys.exit(f"{PICTURE} has {size:,} bytes, more than {LARGEST_BYTES:,}")


def _job(root: Path) -> Path:
    """A JOB of the simulated board."""
    npu = Npu(SimulationOptions(model="yolov4-mish", root=root))
    now_us = npu.load(START_US)
    for number in range(INFERENCES):
        now_us = npu.infer(START_US + (number + 1) * STEP_US)
    npu.unload(now_us)
    assert npu.directory is not None
    return npu.directory


if __name__ == "__main__":
    main()
