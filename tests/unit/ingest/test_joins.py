"""The joins of a JOB's models, from files that come and change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.formats.names import LogName, parse_log_name
from profagent.ingest import joins as module
from profagent.ingest.joins import REMEMBERED_MODELS, Joins, layer_info_path
from tests.encoders import layer_item, net_item

if TYPE_CHECKING:
    import pytest


class Files(dict[str, bytes]):
    """Files that are kept."""

    reads = 0

    def read(self, path: str, size: int | None = None, *, start: int = 0) -> bytes | None:
        self.reads += 1
        data = self.get(path)
        return data if data is None else data[start : None if size is None else start + size]

    def names(self) -> list[str]:
        return list(self)


def name_of(model: str = "m", model_id: int = 0) -> LogName:
    name = parse_log_name(f"data/aicore.0.{model}.3.{model_id}.1.1.0")
    assert name is not None
    return name


LAYERS = layer_item(1, b"a\0", prof_layer_id=1) + layer_item(2, b"b\0", prof_layer_id=2)
NET = net_item(0, prof_layers=2)


def test_a_model_without_files_has_no_join() -> None:
    assert Joins(Files()).of(name_of()) is None


def test_a_join_is_read_once_and_again_when_it_is_renewed() -> None:
    files = Files({"data/m.0.layer.info": LAYERS, "data/m.0.net.info": NET})
    joins = Joins(files)
    first = joins.of(name_of())
    reads = files.reads
    assert first is not None
    assert joins.of(name_of()) is first
    assert files.reads == reads
    assert joins.renew(name_of()), "rows of an earlier process may have been joined with other tables"
    assert not joins.renew(name_of())
    files["data/m.0.layer.info"] = LAYERS[: len(LAYERS) // 2]
    assert joins.renew(name_of())
    assert joins.of(name_of()) is not first


def test_what_was_not_known_may_have_been_anything() -> None:
    assert Joins(Files({"data/m.0.layer.info": LAYERS})).renew(name_of())


def test_a_table_that_cannot_be_read_is_none() -> None:
    joins = Joins(Files({"data/m.0.layer.info": b"\xff\xff", "data/m.0.net.info": b"\xff"}))
    assert joins.of(name_of()) is None
    assert joins.disagreements(name_of()) is None


def test_disagreements_need_both_files() -> None:
    files = Files({"data/m.0.layer.info": LAYERS})
    assert Joins(files).disagreements(name_of()) == []
    files["data/m.0.net.info"] = net_item(0, prof_layers=3)
    (text,) = Joins(files).disagreements(name_of()) or []
    assert "2 runs" in text
    assert "3" in text


def test_models_of_one_name_are_told_apart_by_their_id() -> None:
    joins = Joins(Files({"data/m.1.layer.info": LAYERS}))
    assert joins.of(name_of(model_id=0)) is None
    assert joins.of(name_of(model_id=1)) is not None
    assert layer_info_path(name_of(model_id=1)) == "data/m.1.layer.info"


def test_only_so_many_models_are_remembered() -> None:
    files = Files()
    joins = Joins(files)
    for number in range(REMEMBERED_MODELS + 50):
        joins.of(name_of(f"m{number}"))
        joins.renew(name_of(f"m{number}"))
    assert len(joins._known) == len(joins._told) == REMEMBERED_MODELS
    reads = files.reads
    joins.of(name_of(f"m{REMEMBERED_MODELS + 49}"))
    assert files.reads == reads
    joins.of(name_of("m0"))
    assert files.reads > reads


def test_many_large_tables_are_not_remembered_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_ROWS", 5)
    files = Files({f"data/m{number}.0.layer.info": LAYERS for number in range(4)})
    joins = Joins(files)
    for number in (0, 1, 2, 3, 3, 2):
        joins.of(name_of(f"m{number}"))
        joins.renew(name_of(f"m{number}"))
    assert [model for model, _ in joins._known] == ["m3", "m2"]


def test_a_table_that_is_too_large_for_one_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST_CONTENT_BYTES", len(LAYERS))
    assert Joins(Files({"data/m.0.layer.info": LAYERS})).of(name_of()) is not None
    assert Joins(Files({"data/m.0.layer.info": LAYERS + LAYERS})).of(name_of()) is None
