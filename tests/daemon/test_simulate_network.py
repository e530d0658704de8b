"""Segments, runs and batches of a simulated network."""

from __future__ import annotations

import pytest

from profagentd.simulate.model_file import load_network
from profagentd.simulate.network import AICORE, AICPU, Layer, Network, Run, Segment, batch_sizes, resized, run_order

NETWORK = Network(
    "n",
    (
        Segment(AICORE, tuple(Run((Layer(name, "Convolution"),), 1.0) for name in "abc")),
        Segment(AICPU, (Run((Layer("cpu", "Custom"),), 1.0),)),
        Segment(AICORE, tuple(Run((Layer(name, "Convolution"),), 1.0) for name in "de")),
        Segment(AICPU, (Run((Layer("end", "Custom"),), 1.0),)),
    ),
)


def names(network: Network) -> list[list[str]]:
    return [[run.layers[0].name for run in segment.runs] for segment in network.segments]


def test_the_format_pages_example_of_batches() -> None:
    sizes = batch_sizes(2, 3)
    assert sizes == (2, 1)
    order = run_order([False, False, True, False, False], sizes)
    assert [index for index, _ in order] == [0, 1, 0, 1, 2, 3, 4, 3, 4, 0, 1, 2, 3, 4]
    assert [pictures for index, pictures in order if index == 2] == [2, 1]
    assert {pictures for index, pictures in order if index != 2} == {1}


def test_without_batch_layers_the_network_runs_once_for_each_picture() -> None:
    assert [index for index, _ in run_order([False] * 3, batch_sizes(4, 5))] == [0, 1, 2] * 5


def test_neighbouring_batch_layers_run_once_each() -> None:
    assert [index for index, _ in run_order([False, True, True], batch_sizes(3, 3))] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize(
    ("batch_num", "pictures", "sizes"), [(1, 1, (1,)), (4, 6, (4, 2)), (4, 8, (4, 4)), (8, 3, (3,))]
)
def test_the_last_batch_holds_the_rest(batch_num: int, pictures: int, sizes: tuple[int, ...]) -> None:
    assert batch_sizes(batch_num, pictures) == sizes


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (1, [["a"]]),
        (3, [["a", "b", "c"]]),
        (4, [["a", "b", "c"], ["cpu"], ["d"]]),
        (5, [["a", "b", "c"], ["cpu"], ["d", "e"], ["end"]]),
        (7, [["a", "b", "c"], ["cpu"], ["d", "e", "a_2", "b_2"], ["end"]]),
        (11, [["a", "b", "c"], ["cpu"], ["d", "e", "a_2", "b_2", "c_2", "d_2", "e_2", "a_3"], ["end"]]),
    ],
)
def test_layers_cuts_from_the_end_or_repeats_in_the_last_segment(layers: int, expected: list[list[str]]) -> None:
    assert names(resized(NETWORK, layers)) == expected
    assert sum(len(s.runs) for s in resized(NETWORK, layers).segments if s.unit == AICORE) == layers


@pytest.mark.parametrize("layers", [1, 10, 85, 100, 10_000])
def test_a_built_in_network_has_as_many_layers_as_asked(layers: int) -> None:
    network = resized(load_network("yolov5s"), layers)
    assert sum(len(segment.runs) for segment in network.segments if segment.unit == AICORE) == layers
