"""Records whose counters are known, and the vendor's table of them: what `calibrate` has to find out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from profagent.calibrate.fitting import Evidence
from profagent.calibrate.vendor_table import parse_vendor_table
from profagent.formats.countermap import COUNTERS_END, COUNTERS_START, MAPPED_NAMES
from profagent.formats.records import AICORE_DTYPE

if TYPE_CHECKING:
    import numpy.typing as npt

    from profagent.formats.records import Records

FREQUENCY_MHZ = 700
TITLES = (
    *("Mac Busy Ratio", "Mac Ppen Ratio", "Vec Busy Ratio", "Vec Ppen Ratio", "Dstr Ratio", "Dtrans Ratio"),
    *("DLD Ratio", "WLD Ratio", "DDR Read(byte)", "DDR Write(byte)"),
)
LONGEST_TICKS = 7_000_000
SIZES = {"u16": 2, "u32": 4, "u64": 8}


@dataclass(frozen=True, slots=True)
class Place:
    """Where the truth is: value = number * scale / (denominator's count)."""

    offset: int
    type: str
    scale: float
    denominator: str


@dataclass(slots=True)
class CountedJob:
    """Records of one inference, the vendor's values, and where each counter is; None: its column has no number."""

    records: Records
    values: dict[str, npt.NDArray[np.float64]]
    places: dict[str, Place | None] = field(default_factory=dict)

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """The records as bytes, shape (rows, 256)."""
        return np.frombuffer(self.records.tobytes(), np.uint8).reshape(len(self.records), -1)

    def table(self, decimals: int, *, percent: bool = False, delimiter: str = ",") -> str:
        """The vendor's op_summary of it."""
        ticks = self.records["ticks"].astype(np.float64)
        columns = [
            [f"layer{row}" for row in range(len(ticks))],
            [f"{each * 100 / FREQUENCY_MHZ:.3f}" for each in ticks],
        ]
        columns.append([f"{each * (100 if percent else 1):.{decimals}f}" for each in ticks / ticks.sum()])
        for name in MAPPED_NAMES:
            is_bytes = name.endswith("_bytes")
            factor, digits = (1, 0) if is_bytes else (100 if percent else 1, decimals - 2 if percent else decimals)
            columns.append([f"{value * factor:.{digits}f}" for value in self.values[name]])
        heading = delimiter.join(("Layer Name", "Time(us)", "Time Ratio", *TITLES))
        return "\n".join([heading, *map(delimiter.join, zip(*columns, strict=True))]) + "\n"


def counted_job(
    random: np.random.Generator, rows: int = 90, *, sums: int = 0, constant: int = 0, is_hostile: bool = False
) -> CountedJob:
    """A JOB under a random map: counters at any byte, noise that goes along with them, and words of zeros.

    `sums` columns are sums of two numbers, so have none of their own; `constant` ones are the same in each row.
    `is_hostile`: noise may say nearly or quite the same, bytes come in bursts, and some ratios are over nothing.
    """
    body = np.zeros((rows, AICORE_DTYPE.itemsize), np.uint8)
    ticks = random.integers(200, 60_000, rows)
    free = np.ones(AICORE_DTYPE.itemsize, dtype=np.bool_)
    free[:COUNTERS_START] = free[COUNTERS_END:] = False
    job = CountedJob(np.empty(0, AICORE_DTYPE), {})
    for number, name in enumerate(MAPPED_NAMES):
        is_constant = number >= len(MAPPED_NAMES) - 2 - constant and not name.endswith("_bytes")
        place = _place(random, name, is_hostile=is_hostile)
        raw = _raw(random, name, place, ticks, is_constant=is_constant)
        if is_hostile and name.endswith("_bytes"):
            raw &= np.uint64(2**64 - 2 ** int(random.integers(0, 10)))
        _put(random, body, free, place, raw, job.places, name)
        job.values[name] = _value(raw, place, ticks)
        _add_noise(random, body, free, _hostile_noise(random, raw, ticks) if is_hostile else _noise(random, raw))
    for name in list(MAPPED_NAMES)[:sums]:
        other = job.values[MAPPED_NAMES[(MAPPED_NAMES.index(name) + 1) % 8]]
        job.values[name], job.places[name] = (job.values[name] + other) / 2, None
    body[:, 0:4] = np.arange(rows, dtype="<u4").view(np.uint8).reshape(rows, 4)
    body[:, 4:8] = ticks.astype("<u4").view(np.uint8).reshape(rows, 4)
    job.records = np.frombuffer(body.tobytes(), AICORE_DTYPE)
    return job


def evidence_of(job: CountedJob, decimals: int, *, percent: bool = False) -> dict[str, Evidence]:
    """What the vendor's table of a JOB says of each counter of its records."""
    table = parse_vendor_table(job.table(decimals, percent=percent).encode(), "op_summary.csv")
    ticks = job.records["ticks"].astype(np.float64)
    return {
        name: Evidence(job.bytes, ticks, column.values, np.full(len(ticks), column.half))
        for name, column in table.columns.items()
    }


def records_elsewhere(
    random: np.random.Generator, job: CountedJob, rows: int = 200
) -> tuple[npt.NDArray[np.uint8], dict[str, npt.NDArray[np.float64]]]:
    """Records of another JOB under the same map, of layers up to a second and 4 GiB, and what its counters are.

    Whatever is no counter there is anything.
    """
    body = random.integers(0, 256, (rows, AICORE_DTYPE.itemsize), np.uint8)
    ticks = random.integers(1, LONGEST_TICKS, rows)
    body[:, 4:8] = ticks.astype("<u4").view(np.uint8).reshape(rows, 4)
    free = np.ones(AICORE_DTYPE.itemsize, dtype=np.bool_)
    values = {}
    for name, place in job.places.items():
        if place is not None:
            most = np.full(rows, 2.0**32 - 1) if name.endswith("_bytes") else _over(place, ticks) / place.scale
            raw = np.minimum(random.uniform(0, 1, rows) * most, 256.0 ** SIZES[place.type] - 1).astype(np.uint64)
            _write(body, free, place.offset, SIZES[place.type], raw)
            values[name] = _value(raw, place, ticks)
    return body, values


def _place(random: np.random.Generator, name: str, *, is_hostile: bool) -> Place:
    """A form in which the counts of all rows have room."""
    if name.endswith("_bytes"):
        return Place(0, str(random.choice(["u32", "u64"])), 1.0, "none")
    if is_hostile and random.random() < 0.1:
        return Place(0, str(random.choice(["u16", "u32"])), float(random.choice([0.01, 0.0001])), "none")
    denominator, scale = str(random.choice(["ticks", "cycles"])), float(random.choice([1.0, 0.01]))
    types = ["u16", "u32", "u64"] if (denominator, scale) == ("ticks", 1.0) else ["u32", "u64"]
    return Place(0, str(random.choice(types)), scale, denominator)


def _raw(
    random: np.random.Generator, name: str, place: Place, ticks: npt.NDArray[np.int64], *, is_constant: bool
) -> npt.NDArray[np.uint64]:
    if name.endswith("_bytes"):
        return (random.uniform(100, 900) * ticks * random.uniform(0.5, 1.5, len(ticks))).astype(np.uint64)
    share = np.full(len(ticks), random.uniform(0.1, 0.9)) if is_constant else random.uniform(0.02, 0.98, len(ticks))
    return (share * _over(place, ticks) / place.scale).astype(np.uint64)


def _over(place: Place, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    if place.denominator == "none":
        return np.ones(len(ticks))
    return ticks.astype(np.float64) * (100 if place.denominator == "cycles" else 1)


def _value(raw: npt.NDArray[np.uint64], place: Place, ticks: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    value: npt.NDArray[np.float64] = raw.astype(np.float64) * place.scale / _over(place, ticks)
    return value


def _put(
    random: np.random.Generator,
    body: npt.NDArray[np.uint8],
    free: npt.NDArray[np.bool_],
    place: Place,
    raw: npt.NDArray[np.uint64],
    places: dict[str, Place | None],
    name: str,
) -> None:
    offset = _room(random, free, SIZES[place.type])
    assert offset is not None, "ten counters always have room"
    _write(body, free, offset, SIZES[place.type], raw)
    places[name] = Place(offset, place.type, place.scale, place.denominator)


def _add_noise(
    random: np.random.Generator,
    body: npt.NDArray[np.uint8],
    free: npt.NDArray[np.bool_],
    noise: npt.NDArray[np.float64],
) -> None:
    size = int(random.choice([2, 4]))
    offset = _room(random, free, size)
    if offset is None or random.random() < 0.3:
        return
    _write(body, free, offset, size, np.minimum(noise, 2.0 ** (8 * size) - 1).astype(np.uint64))


def _noise(random: np.random.Generator, raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """A number that goes along with a counter, off by up to some per cent, or a constant one."""
    off_by = 10 ** random.uniform(-3, -1)
    near: npt.NDArray[np.float64] = raw * random.uniform(1 - off_by, 1 + off_by, len(raw))
    return near if random.random() < 0.8 else np.full(len(raw), 7.0)


def _hostile_noise(
    random: np.random.Generator, raw: npt.NDArray[np.uint64], ticks: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """A number that is nearly the counter's, or in most rows, or in other units, or a sum; or the time."""
    count = raw.astype(np.float64)
    some = random.random(len(raw)) < random.choice([0.02, 0.5])
    near = count * random.uniform(1 - 1e-4, 1 + 1e-4, len(raw))
    kinds = [count, count + 1, near, np.floor(count / 100), count * 100, np.floor(count / 256)]
    kinds += [count * (1 + some), np.cumsum(count), ticks.astype(np.float64), ticks * 100.0]
    return kinds[int(random.integers(len(kinds)))]


def _room(random: np.random.Generator, free: npt.NDArray[np.bool_], size: int) -> int | None:
    starts = [at for at in range(COUNTERS_START, COUNTERS_END - size + 1) if free[at : at + size].all()]
    return int(random.choice(starts)) if starts else None


def _write(
    body: npt.NDArray[np.uint8], free: npt.NDArray[np.bool_], offset: int, size: int, raw: npt.NDArray[np.uint64]
) -> None:
    body[:, offset : offset + size] = raw.astype("<u8").view(np.uint8).reshape(len(raw), 8)[:, :size]
    free[offset : offset + size] = False
