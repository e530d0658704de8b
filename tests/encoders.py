"""Small encoders of the runtime's formats, written from the format page and not from the code that they test."""

from __future__ import annotations

import struct

_LENGTH_FORMS = {0x8000: "<HB", 0xA000: "<HH", 0xC000: "<HI"}


def integer_item(item_id: int, value: int, size: int = 2) -> bytes:
    """An integer item of 1, 2 or 4 bytes."""
    encoding, form = {1: (0x2000, "<HB"), 2: (0x4000, "<HH"), 4: (0x6000, "<HI")}[size]
    return struct.pack(form, encoding | item_id, value)


def bytes_item(item_id: int, content: bytes, encoding: int = 0x8000) -> bytes:
    """An item with a length of 1 (0x8000), 2 (0xA000) or 4 bytes (0xC000)."""
    return struct.pack(_LENGTH_FORMS[encoding], encoding | item_id, len(content)) + content


def layer_item(
    layer_id: int,
    name: bytes,
    layer_type: bytes = b"Convolution\0",
    *,
    prof_layer_id: int,
    segment: int = 0,
    output_index: int = 0,
    is_batch: bool = False,
    encoding: int = 0xC000,
) -> bytes:
    """A layer container with the items that the compiler writes, and some that a reader skips."""
    nested = [
        integer_item(0x112, layer_id),
        bytes_item(0x114, name),
        integer_item(0x118, 0, size=1),
        integer_item(0x121, int(is_batch), size=1),
        bytes_item(0x152, layer_type),
        integer_item(0x157, prof_layer_id),
        integer_item(0x14B, segment),
        integer_item(0x15B, output_index),
        bytes_item(0x15A, b"\x01\x02\x03"),
    ]
    return bytes_item(0x111, b"".join(nested), encoding)


def net_items(net_id: int, *, prof_layers: int, batch_layers: int = 0, max_loop: int = 1) -> bytes:
    """What a net_info container holds."""
    return b"".join(
        [
            integer_item(0x041, net_id),
            integer_item(0x042, 1, size=1),
            integer_item(0x043, 1, size=4),
            integer_item(0x207, prof_layers),
            integer_item(0x20C, prof_layers),
            integer_item(0x20D, batch_layers),
            integer_item(0x20E, max_loop),
            bytes_item(0x058, b"in0\0"),
        ]
    )


def net_item(net_id: int, *, prof_layers: int, batch_layers: int = 0, max_loop: int = 1) -> bytes:
    """A whole net_info container."""
    nested = net_items(net_id, prof_layers=prof_layers, batch_layers=batch_layers, max_loop=max_loop)
    return bytes_item(0x040, nested, 0xA000)


def aicore_record(sequence: int, ticks: int, net: int, words: dict[int, int] | None = None) -> bytes:
    """A record of 256 bytes; `words` are u32 by byte offset."""
    record = bytearray(256)
    for offset, value in {0x00: sequence, 0x04: ticks, 0xFC: net, **(words or {})}.items():
        struct.pack_into("<I", record, offset, value)
    return bytes(record)


def aicpu_record(sequence: int, begin_us: int, end_us: int, segment_us: tuple[int, int], net: int) -> bytes:
    """A record of 128 bytes."""
    return struct.pack("<IxxxxQQQQ", sequence, begin_us, end_us, *segment_us).ljust(0x7C, b"\0") + struct.pack(
        "<I", net
    )


def api_record(api: int, begin_us: int, end_us: int, pid: int = 7, tid: int = 8, magic: int = 0x5A5A) -> bytes:
    """A record of 32 bytes."""
    return struct.pack("<IIQQII", magic, api, begin_us, end_us, pid, tid)


def done_text(**values: int | str) -> bytes:
    """A `.done`, a line for each key in the order given."""
    return "".join(f"{key}:{value}\n" for key, value in values.items()).encode()
