"""Names that are replaced: the same throughout, in as many bytes, and none that stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profagent.calibrate.kit import Anonymous
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.formats.model_info import parse_layer_info, parse_net_info
from profagent.formats.names import parse_log_name
from profagentd.simulate import draw as encode
from profagentd.simulate.network import AICORE, Layer, Network, Run, Segment
from tests.encoders import bytes_item, net_items

TITLES = "Layer Id,Ori Layer Name,Layer Name,Layer Type,Time(us),Mac Busy Ratio\n"


def network(*names: str) -> Network:
    return Network("secret", (Segment(AICORE, tuple(Run((Layer(name, "Conv"),), 1.0) for name in names)),) * 2)


@pytest.mark.parametrize(
    "path",
    [
        "data/aicore.0.0.3.0.1.1.0",
        "data/aicore.0.my_net.3.0.1.1.0.done",
        "data/AAcpu.0.卷积.0.1.1.17",
        "data/0.0.net.info",
        "data/my.1.layer.info",
    ],
)
def test_a_models_name_goes_and_the_numbers_of_its_files_stay(path: str) -> None:
    name = parse_log_name(path)
    aliased = parse_log_name(Anonymous().path(path))
    assert name is not None
    assert aliased is not None
    assert aliased.model != name.model
    assert (aliased.kind, aliased.is_done, aliased.inference and aliased.inference[2:]) == (
        name.kind,
        name.is_done,
        name.inference and name.inference[2:],
    )


@pytest.mark.parametrize(("form", "with_nul"), [(encode.BYTES32, True), (encode.BYTES16, False)])
def test_a_layer_table_stays_as_it_is_but_for_names(form: int, with_nul: bool) -> None:
    data = encode.layer_info(network("secret/conv1", "b+secret", "层"), form=form, with_nul=with_nul)
    replaced = Anonymous().content("data/m.0.layer.info", data)
    assert len(replaced) == len(data)
    assert b"secret" not in replaced
    before, after = (parse_layer_info(each, "x").layers for each in (data, replaced))
    assert [layer.type for layer in after] == [layer.type for layer in before]
    assert [len(layer.name.encode()) for layer in after] == [len(layer.name.encode()) for layer in before]
    assert after[:3] != after[3:]
    assert [layer.name for layer in after[:3]] == [layer.name for layer in after[3:]]


@given(st.sampled_from(["layer", "net"]), st.binary(max_size=99), st.integers(0, 200))
def test_no_name_stays_in_a_torn_file(kind: str, said: bytes, at: int) -> None:
    data = bytearray(encode.layer_info(network("secret/conv", "relu")))
    data[at : at + len(said)] = said
    replaced = Anonymous().content(f"data/m.0.{kind}.info", bytes(data))
    assert len(replaced) == len(data)
    assert b"secret" not in replaced


@pytest.mark.parametrize("start", ["items", "length", "container", "elsewhere"])
def test_nets_begin_where_they_did(start: str) -> None:
    data = encode.net_info(network("conv"), start)
    names = Anonymous()
    replaced = names.content("data/m.0.net.info", data)
    assert len(replaced) == len(data)
    assert parse_net_info(replaced, "x") == parse_net_info(data, "x")
    secret = names.content("data/m.0.net.info", net_items(0, prof_layers=1) + bytes_item(0x045, b"/home/me"))
    assert b"/home" not in secret


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_a_vendor_table_has_the_same_aliases_and_its_numbers(encoding: str, delimiter: str) -> None:
    names = Anonymous()
    names.content("data/m.0.layer.info", encode.layer_info(network("卷积1", "relu")))
    rows = (
        TITLES,
        "0,N/A,卷积1+relu\t,Conv+Relu,10.000,0.5000\n" if delimiter == "," else "0,N/A,卷积1+relu,Conv,10.0,0.5\n",
        "1,relu,a|relu,Conv,2.000,50%\n-,-,total,-,12.0,0.5\n",
    )
    data = "".join(rows).replace(",", delimiter)
    replaced = names.table(data.encode(encoding), "x.csv")
    before, after = parse_vendor_table(data.encode(encoding), "x"), parse_vendor_table(replaced, "x")
    assert after.time_us.values.tolist() == before.time_us.values.tolist()
    shown = replaced.decode()
    assert "卷积" not in shown
    assert shown.splitlines()[0] == TITLES.strip()
    assert "relu" not in shown
    assert after.names[0] == "Laaaaaa+Laaa"
