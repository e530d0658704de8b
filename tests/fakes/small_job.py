"""A small JOB that has a bit of everything: segments on both units, a reload, batches, calls, a log without end."""

from __future__ import annotations

from tests.encoders import aicore_record, aicpu_record, api_record, done_text, layer_item, net_item

START_US = 1_795_230_382_000_000
PLAIN = "data/aicore.0.m.3.0.1.1.0"
ON_CPU = "data/aicpu.0.m.3.0.1.1.0"
RELOADED = "data/aicore.0.m.3.0.1.1.7"
ALIKE = "data/aicore.0.m.3.0.1.1.8"
BATCHED = "data/aicore.0.b.3.1.2.3.0"
CALLS = "data/acl_api.0.m.0"
UNENDED = "data/aicore.0.m.3.0.1.1.9"
EMPTY = "data/aicore.0.m.3.0.1.1.12"
TORN = "data/aicpu.0.m.3.0.1.1.9"


def aicore_done(file_len: int, start_us: int = START_US, batches: str = "") -> bytes:
    """An aicore `.done`."""
    text = done_text(file_len=file_len, start_time=start_us, end_time=start_us + 900, cache_hit=3, cache_mis=1)
    return text + (f"online_batch_num:{batches}".encode() if batches else b"")


def _layers(*segments: int) -> bytes:
    items = [
        layer_item(10 + i, f"l{i}".encode() + b"\0", prof_layer_id=1 + i, segment=segment)
        for i, segment in enumerate(segments)
    ]
    return b"".join(items)


def _run(net: int, *sequence: int, ticks: int = 100) -> bytes:
    return b"".join(aicore_record(number, ticks + number, net, {0x08: 50 + number}) for number in sequence)


_CPU = [aicpu_record(i, START_US + 300 + i, START_US + 301 + i, (START_US + 300, START_US + 310), 1) for i in range(2)]
_BATCH_LAYERS = b"".join(
    layer_item(i, f"b{i}".encode() + b"\0", prof_layer_id=1 + i, is_batch=i == 2) for i in range(5)
)

SMALL_JOB: dict[str, bytes] = {
    "info.json.0": b'{"DeviceInfo": [{"aic_frequency": "700"}]}',
    "data/m.0.layer.info": _layers(0, 0, 0, 1, 1, 2),
    "data/m.0.net.info": b"".join(net_item(net, prof_layers=layers) for net, layers in ((0, 3), (1, 2), (2, 1))),
    "data/b.1.layer.info": _BATCH_LAYERS,
    "data/b.1.net.info": net_item(0, prof_layers=5, batch_layers=1),
    PLAIN: _run(0, 0, 1, 2) + _run(2, 0),
    PLAIN + ".done": aicore_done(4 * 256),
    ON_CPU: b"".join(_CPU),
    ON_CPU + ".done": done_text(file_len=256, start_time=START_US + 300, end_time=START_US + 310),
    # Loaded twice: the second inference has all its records, the first one misses some.
    RELOADED: _run(0, 0, 2) + _run(2, 0) + _run(0, 0, 1, 2, ticks=300) + _run(2, 0, ticks=300),
    RELOADED + ".done": aicore_done(4 * 256, START_US + 5_000),
    # Loaded thrice with one record each: only the announced length tells where the last begins.
    ALIKE: _run(0, 0) + _run(0, 0, ticks=200) + _run(0, 0, ticks=400),
    ALIKE + ".done": aicore_done(256, START_US + 9_000),
    # The worked example of the-format.md 3.1, with the same batches at run time.
    BATCHED: _run(0, *range(14)),
    BATCHED + ".done": aicore_done(14 * 256, START_US + 20_000, batches="1,2"),
    CALLS: b"".join(api_record(2, START_US + i * 1000, START_US + i * 1000 + 900) for i in range(4))
    + api_record(2, 0, START_US + 4_900)
    + api_record(2, 1, 2, magic=7),
    CALLS + ".done": done_text(file_len=192, start_time=0, end_time=START_US + 4_900, pid=7, tid=8),
    UNENDED: _run(0, 0, 1),
    TORN: _CPU[0] + _CPU[1][:100],
    TORN + ".done": done_text(file_len=512, start_time=START_US + 300, end_time=START_US + 310),
    "data/aicore.0.m.3.0.1.1.11.done": aicore_done(768),
    EMPTY: b"",
    EMPTY + ".done": aicore_done(768),
    "data/core": b"not of the runtime",
}
