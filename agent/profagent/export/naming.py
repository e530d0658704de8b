"""Names of exported files: the manual's fields, and what keeps two tables from one name."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from profagent.store.selection import InferenceRow

UNKNOWN_FIELD = "NA"
AGGREGATE = "aggregate"
# File systems allow 255; the rest is for `.2`, `.3`… and the extension.
LONGEST_STEM_BYTES = 240
DIGEST_HEX = 10
_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')


def task_time_name(row: InferenceRow) -> str:
    """task_time_{device_id}.{model}.{model_id}.{batch_num}."""
    return _with_model(f"task_time_{row.device_id}.", row.model_name, f".{row.model_id}.{row.batch_num}")


def acl_name(device_id: int, model_name: str, model_id: int, batch_num: int) -> str:
    """acl_{device_id}.{model}.{model_id}.{batch_num}."""
    return _with_model(f"acl_{device_id}.", model_name, f".{model_id}.{batch_num}")


def op_summary_name(row: InferenceRow, frequency_mhz: int | None, *, is_aggregate: bool) -> str:
    """op_summary_{device_id}.{model}.{model_id}.{batch_num}.{pictures}.{icache_miss_rate}.{frequency}[.reload{n}].

    The pictures are `{input_pic_num}.{current_pic_count}`, and `aggregate` over several inferences.
    """
    pictures = AGGREGATE if is_aggregate else f"{row.input_pic_num}.{row.current_pic_count}"
    frequency = UNKNOWN_FIELD if frequency_mhz is None else frequency_mhz
    reload = f".reload{row.stretch}" if row.stretch and not is_aggregate else ""
    fields = f".{row.model_id}.{row.batch_num}.{pictures}.{icache_miss_rate(row)}.{frequency}{reload}"
    return _with_model(f"op_summary_{row.device_id}.", row.model_name, fields)


def op_statistic_name(row: InferenceRow, *, is_aggregate: bool) -> str:
    """op_statistic_{device_id}_{model_id}_{current_pic_count}_{iter_id}, the last two `aggregate` over several."""
    pictures = AGGREGATE if is_aggregate else f"{row.current_pic_count}_{row.iter_id}"
    return f"op_statistic_{row.device_id}_{row.model_id}_{pictures}"


def acl_statistic_name(device_id: int, model_id: int) -> str:
    """acl_statistic_{device_id}_{model_id}_0: calls are not told apart by inference."""
    return f"acl_statistic_{device_id}_{model_id}_0"


def icache_miss_rate(row: InferenceRow) -> str:
    """cache_miss / (cache_hit + cache_miss), from 0.0000 to 1.0000; NA where one is not known or both are 0."""
    hit, miss = row.cache_hit, row.cache_miss
    return UNKNOWN_FIELD if hit is None or miss is None or not hit + miss else f"{miss / (hit + miss):.4f}"


def unique_name(stem: str, extension: str, taken: Collection[str]) -> str:
    """The name `stem.extension`, or `stem.2.extension` and so on where it is taken."""
    name, number = f"{stem}.{extension}", 1
    while name in taken:
        number += 1
        name = f"{stem}.{number}.{extension}"
    return name


def _with_model(before: str, model_name: str, after: str) -> str:
    """Put the three together; a model's name that is too long ends in `~` and a digest of the whole."""
    # What some system refuses in a file name: exports are copied to others.
    name = _REFUSED_CHARACTERS.sub("_", model_name).encode()
    room = LONGEST_STEM_BYTES - len(before.encode()) - len(after.encode())
    if len(name) <= room:
        return f"{before}{name.decode()}{after}"
    digest = hashlib.blake2b(name, digest_size=DIGEST_HEX // 2).hexdigest()
    return f"{before}{name[: room - len(digest) - 1].decode(errors='ignore')}~{digest}{after}"
