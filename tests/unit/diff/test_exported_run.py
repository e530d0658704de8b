"""Tables op_summary as runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from profagent.diff.runs import exported_files, read_exported
from profagent.errors import UsageError

NAME = "op_summary_0.my.net.3.2.4.{}.0.0267.700.csv"
TABLE = """\
Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Time Ratio
1,N/A,conv,Convolution,{},50.00
2,N/A,"a,b",Pooling,3.500,10.00
1,N/A,conv,Convolution,1.000,50.00
-,-,total,-,9.000,100.00
"""


def _table(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, "utf-8")
    return file


def test_a_table_is_an_inference_whose_layers_are_added_up(tmp_path: Path) -> None:
    _table(tmp_path, NAME.format(0), TABLE.format("2.000"))
    # Spreadsheets put a mark before the text.
    _table(tmp_path, NAME.format(4), "\ufeff" + TABLE.format("5.000"))
    models, provenance = read_exported(exported_files(tmp_path), None)
    assert [model.name for model in models] == ["my.net", "my.net"]
    assert [(layer.name, layer.type, layer.unit) for layer in models[0].layers] == [
        ("conv", "Convolution", "AA_CORE"),
        ("a,b", "Pooling", "AA_CORE"),
    ]
    np.testing.assert_array_equal([model.times[0] for model in models], [[3.0, 3.5], [6.0, 3.5]])
    assert models[0].pictures == {(2, 4)}
    assert provenance == []


@pytest.mark.parametrize(("skip", "left_out"), [(None, 2), (1, 1), (0, 0), (20, 0)])
def test_inferences_come_as_they_ran_without_the_warm_up_of_each_load(
    tmp_path: Path, skip: int | None, left_out: int
) -> None:
    for load, end in enumerate(("csv", "reload1.csv")):
        for count in range(12):
            time = 900 if count < 2 else 100 * load + count
            _table(tmp_path, NAME.format(count).replace("csv", end), TABLE.format(float(time)))
    models, _ = read_exported(exported_files(tmp_path), skip)
    times = [float(model.times[0, 0]) - 1 for model in models]
    first = 2 if skip is None else skip
    assert times == [900 if count < 2 else 100 * load + count for load in range(2) for count in range(first, 12)]
    assert sum(model.left_out for model in models) == 2 * left_out


def test_a_table_of_json_and_what_stands_beside_it(tmp_path: Path) -> None:
    rows = [{"Layer Id": 1, "Layer Name": "conv", "Layer Type": "Convolution", "Time(us)": 2.5}]
    file = _table(tmp_path, "some.json", json.dumps(rows))
    _table(tmp_path, "metadata.json", json.dumps({"simulated": True, "ledger": {}, "sampling": {}}))
    ((model,), (provenance,)) = read_exported(exported_files(file), None)
    assert (model.name, model.times.tolist(), model.pictures) == ("some", [[2.5]], frozenset())
    assert provenance["simulated"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.csv", ""),
        ("x.csv", "a,b\n1,2\n"),
        ("x.csv", TABLE.format("N/A")),
        ("x.json", "{}"),
        ("x.json", "[1]"),
        ("x.json", "{"),
        ("x.xlsx", "PK"),
    ],
)
def test_what_is_no_such_table_is_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        read_exported([_table(tmp_path, name, text)], None)
