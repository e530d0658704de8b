"""Names of exported files: the manual's fields, and what keeps two tables from one name."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from profagent.store.selection import InferenceRow

__all__ = [
    "FileNames",
    "acl_name",
    "acl_statistic_name",
    "icache_miss_rate",
    "op_statistic_name",
    "op_summary_name",
    "task_time_name",
]

UNKNOWN_FIELD = "NA"
AGGREGATE = "aggregate"
# File systems allow 255; the rest is for `.2`, `.3`… and the extension.
LONGEST_STEM_BYTES = 240
DIGEST_HEX = 10
_REFUSED_CHARACTERS = re.compile(r'[<>:"/\\|?*\x00-\x1f]')


def task_time_name(inference: InferenceRow) -> str:
    """task_time_{device_id}.{model}.{model_id}.{batch_num}."""
    row = inference
    return _with_model(f"task_time_{row.device_id}.", row.model_name, f".{row.model_id}.{row.batch_num}")


def acl_name(device_id: int, model_name: str, model_id: int, batch_num: int) -> str:
    """acl_{device_id}.{model}.{model_id}.{batch_num}."""
    return _with_model(f"acl_{device_id}.", model_name, f".{model_id}.{batch_num}")


def op_summary_name(inference: InferenceRow, frequency_mhz: int | None, *, is_aggregate: bool) -> str:
    """op_summary_{device_id}.{model}.{model_id}.{batch_num}.{pictures}.{icache_miss_rate}.{frequency}[.reload{n}].

    The pictures are `{input_pic_num}.{current_pic_count}`, and `aggregate` over several inferences.
    """
    row = inference
    pictures = AGGREGATE if is_aggregate else f"{row.input_pic_num}.{row.current_pic_count}"
    frequency = UNKNOWN_FIELD if frequency_mhz is None else frequency_mhz
    fields = f".{row.model_id}.{row.batch_num}.{pictures}.{icache_miss_rate(row)}.{frequency}"
    reload = "" if is_aggregate else _reload(row)
    return _with_model(f"op_summary_{row.device_id}.", row.model_name, fields + reload)


def op_statistic_name(inference: InferenceRow, *, is_aggregate: bool) -> str:
    """op_statistic_{device_id}_{model_id}_{current_pic_count}_{iter_id}, the last two `aggregate` over several."""
    row = inference
    pictures = AGGREGATE if is_aggregate else f"{row.current_pic_count}_{row.iter_id}"
    return f"op_statistic_{row.device_id}_{row.model_id}_{pictures}"


def acl_statistic_name(device_id: int, model_id: int) -> str:
    """acl_statistic_{device_id}_{model_id}_0: calls are not told apart by inference."""
    return f"acl_statistic_{device_id}_{model_id}_0"


def icache_miss_rate(inference: InferenceRow) -> str:
    """cache_miss / (cache_hit + cache_miss), from 0.0000 to 1.0000; NA where one is not known or both are 0."""
    hit, miss = inference.cache_hit, inference.cache_miss
    if hit is None or miss is None or not hit + miss:
        return UNKNOWN_FIELD
    return f"{miss / (hit + miss):.4f}"


class FileNames:
    """Gives each table of a directory a name of its own."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, stem: str, extension: str) -> str:
        """The name `stem.extension`, or `stem.2.extension` and so on where it is taken."""
        name, number = f"{stem}.{extension}", 1
        while name in self._taken:
            number += 1
            name = f"{stem}.{number}.{extension}"
        self._taken.add(name)
        return name


def _reload(inference: InferenceRow) -> str:
    return f".reload{inference.stretch}" if inference.stretch else ""


def _with_model(before: str, model_name: str, after: str) -> str:
    """Put the three together; a model's name that is too long ends in `~` and a digest of the whole."""
    # What some system refuses in a file name: exports are copied to others.
    name = _REFUSED_CHARACTERS.sub("_", model_name).encode()
    room = LONGEST_STEM_BYTES - len(before.encode()) - len(after.encode())
    if len(name) > room:
        digest = hashlib.blake2b(name, digest_size=DIGEST_HEX // 2).hexdigest()
        kept = name[: room - len(digest) - 1].decode(errors="ignore")
        return f"{before}{kept}~{digest}{after}"
    return f"{before}{name.decode()}{after}"
