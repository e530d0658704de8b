"""The tables of `show`, and what is said beside them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from profagent.export.cli import show, shown_as_document, shown_as_text
from profagent.store.selection import Choice
from tests.unit.store.database import START_US, DatabaseBuilder

if TYPE_CHECKING:
    from pathlib import Path


def _filled(builder: DatabaseBuilder, **session: Any) -> Path:
    number = builder.session(**session)
    job = builder.job(number)
    model = builder.model(job, "检测", layers=("conv", "pool"))
    for pic in range(3):
        inference = builder.inference(number, model, pic, start_us=START_US + 100 * pic)
        builder.aicore(inference, builder.new_part(number, model, "aicore"), [70 + pic, 140])
    log = builder.log(job, model, "acl_api", "data/acl_api.0.检测.0")
    builder.calls(builder.part(number, log), [(2, 0, 50)])
    builder.ledger(number, "loss", "torn record", 1, job)
    builder.ledger(number, "note", "filter gap", 2, job)
    return builder.close()


async def test_it_says_how_many_inferences_are_not_shown(builder: DatabaseBuilder) -> None:
    file = _filled(builder)
    assert any("1 of 3 inferences shown" in line for line in shown_as_text((await show(file))[0]))
    everything = (await show(file, choice=Choice()))[0]
    assert not any("inferences shown" in line for line in shown_as_text(everything))
    assert [table.kind for table in everything.tables].count("AA core metric") == 3


async def test_losses_and_notes_follow_the_tables(builder: DatabaseBuilder) -> None:
    text = "\n".join(shown_as_text((await show(_filled(builder)))[0]))
    assert "loss: torn record x 1\nnote: filter gap x 2\n" in text
    assert "loss: none" not in text


async def test_the_document_is_json_with_rows_by_column(builder: DatabaseBuilder) -> None:
    document = json.loads(json.dumps(shown_as_document((await show(_filled(builder)))[0])))
    assert document["ledger"]["loss"] == {"torn record": 1}
    tables = {table["table"]: table for table in document["tables"]}
    assert tables["AA core metric"]["model"] == "检测"
    assert [row["Layer Name"] for row in tables["AA core metric"]["rows"]] == ["conv", "pool", "total"]
    assert tables["Frequency"]["rows"] == [{"Device Id": 0, "Frequency(MHz)": 700}]


async def test_a_model_s_name_cannot_move_the_cursor(builder: DatabaseBuilder) -> None:
    session = builder.session()
    model = builder.model(builder.job(session), "a\x1b[2J\n")
    builder.aicore(builder.inference(session, model), builder.new_part(session, model, "aicore"), [7])
    lines = list(shown_as_text((await show(builder.close()))[0]))
    assert not any("\x1b" in line or "\n" in line for line in lines)
