"""The bytes of a simulated JOB's files against the format page."""

from __future__ import annotations

import struct

from profagentd.simulate import encode
from profagentd.simulate.network import AICORE, AICPU, Layer, Network, Run, Segment
from tests.daemon.simulated_job import items

NETWORK = Network(
    "net",
    (
        Segment(
            AICORE,
            (
                Run((Layer("conv1", "Convolution"), Layer("relu1", "Relu")), 10.0),
                Run((Layer("split", "Split", 2),), 5.0),
                Run((Layer("fc", "InnerProduct"),), 5.0, is_batch=True),
            ),
        ),
        Segment(AICPU, (Run((Layer("nms", "Nms"),), 5.0),)),
    ),
)


def test_aicore_record_has_sequence_ticks_words_and_segment_in_place() -> None:
    record = encode.aicore_record(7, 500, bytes(range(244)), 2)
    assert len(record) == 256
    assert struct.unpack_from("<II", record) == (7, 500)
    assert record[0x08:0xFC] == bytes(range(244))
    assert struct.unpack_from("<I", record, 0xFC) == (2,)


def test_aicpu_record_has_its_times_and_zeros_elsewhere() -> None:
    record = encode.aicpu_record(3, (11, 12), (10, 20), 1)
    assert len(record) == 128
    assert struct.unpack_from("<II", record) == (3, 0)
    assert struct.unpack_from("<QQQQ", record, 0x08) == (11, 12, 10, 20)
    assert record[0x28:0x7C] == bytes(0x7C - 0x28)
    assert struct.unpack_from("<I", record, 0x7C) == (1,)


def test_api_record_equals_one_of_the_real_library() -> None:
    real = bytes.fromhex("5a5a000000000000bf9266e0c0600600f7e866e0c0600600cb700000cb700000")
    assert encode.api_record(0, 1795231375069887, 1795231375091959, 28875, 28875) == real


def test_texts_equal_those_of_the_real_library() -> None:
    assert encode.info_json(700) == b'{"DeviceInfo": [{"aic_frequency": "700"}]}'
    assert encode.aicpu_done(384, (5, 6)) == b"file_len:384\nstart_time:5\nend_time:6\n"
    assert encode.api_done(96, (5, 6), 7, 8) == b"file_len:96\nstart_time:5\nend_time:6\npid:7\ntid:8\n"
    head = b"file_len:2304\nstart_time:5\nend_time:6\ncache_hit:42\ncache_mis:1032\n"
    assert encode.aicore_done(2304, (5, 6), (42, 1032)) == head
    assert encode.aicore_done(2304, (5, 6), (42, 1032), (4, 2)) == head + b"online_batch_num:4,2"


def test_layer_info_is_one_container_for_each_output() -> None:
    containers = items(encode.layer_info(NETWORK))
    assert [tag for tag, _ in containers] == [0xC111] * 6
    layers = [dict(items(value)) for _, value in containers]
    assert [layer[0x8114] for layer in layers] == [b"conv1\0", b"relu1\0", b"split\0", b"split\0", b"fc\0", b"nms\0"]
    assert [layer[0x8152] for layer in layers][:2] == [b"Convolution\0", b"Relu\0"]
    assert [layer[0x4112] for layer in layers] == [0, 1, 2, 2, 3, 4]
    assert [layer[0x415B] for layer in layers] == [0, 0, 0, 1, 0, 0]
    assert [layer[0x4157] for layer in layers] == [0, 0, 1, 1, 2, 0]
    assert [layer[0x414B] for layer in layers] == [0, 0, 0, 0, 0, 1]
    assert [layer[0x2121] for layer in layers] == [0, 0, 0, 0, 1, 0]


def test_net_info_begins_inside_its_first_container() -> None:
    data = encode.net_info(NETWORK)
    tag, second_net = items(data)[-1]
    assert tag == 0xA040
    first, second = dict(items(data)[:-1]), dict(items(second_net))
    assert (first[0x4041], first[0x4207], first[0x420C], first[0x420D], first[0x420E]) == (0, 5, 3, 1, 1)
    assert (second[0x4041], second[0x4207], second[0x420C], second[0x420D], second[0x420E]) == (1, 1, 1, 0, 1)
    assert data[:2] == b"\x41\x40"


def test_net_info_can_begin_elsewhere() -> None:
    whole = encode.net_info(NETWORK, "container")
    assert items(whole)[0][0] == 0xA040
    assert encode.net_info(NETWORK, "length")[:4] == b"\0\0\x41\x40"
    assert encode.net_info(NETWORK, "elsewhere").endswith(whole)
    assert not encode.net_info(NETWORK, "elsewhere").startswith(whole[:2])


def test_layer_info_in_the_other_form_and_without_nul() -> None:
    containers = items(encode.layer_info(NETWORK, form=encode.BYTES16, with_nul=False))
    assert [tag for tag, _ in containers] == [0xA111] * 6
    assert dict(items(containers[0][1]))[0x8114] == b"conv1"


def test_a_long_name_that_is_not_ascii_keeps_its_length() -> None:
    network = Network("n", (Segment(AICORE, (Run((Layer("层" * 50, "卷" * 50),), 1.0),)),))
    ((_, container),) = items(encode.layer_info(network))
    assert dict(items(container))[0x8114] == "层".encode() * 50 + b"\0"
