"""Looking at a board over SSH before anything is written there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.deploy.survey import BoardFacts, read_survey, survey_script
from profagent.deploy.units import every_service_file

if TYPE_CHECKING:
    from profagent.deploy.layout import Layout
    from profagent.ssh.remote import Remote


async def survey(remote: Remote, layout: Layout) -> BoardFacts:
    """What the board is, and what was deployed there; its key stays there. Raises UnreachableError, ProfagentError."""
    told = (path for path in layout.files if not path.endswith(".key"))
    script = survey_script(layout, (*told, f"{layout.roots_d}/*.conf", *every_service_file(layout)))
    return read_survey((await remote.must("sh -s", script.encode())).stdout.decode("utf-8", "replace"))
