"""Checks of an acl.json: whether the runtime would record anything with it (format page 5)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from profagent.doctor.acl_correction import PROFILER_KEYS, corrected_acl_json, meant_key
from profagent.doctor.daemon_settings import given
from profagent.doctor.finding import Finding, Mark, Section, bad, good, unknown
from profagent.doctor.roots import plain_path
from profagent.errors import FormatError
from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import INTERVAL_MAX, interval_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from profagent.link.examination import DaemonFacts

# The runtime reads about so much.
LARGEST_BYTES = 10 << 20
# No acl.json needs as much.
DEEPEST = 32
# Item: the key that libraries read, its value, and the manual's spelling.
ITEMS = {
    "aicore": ("aic_metrics", "ArithmeticUtilization", "aac_metrics"),
    "aicpu": ("aicpu", "on", "aacpu"),
    "acl_api": ("acl_api", "on", ""),
}
_WRITE = "write the corrected text below into it, and start the program again"
_MEND = "mend it there, then check it again: what else keeps the runtime from recording shows then"
_TO_RECORD = "to record with this file, write the corrected text below into it"
_NAME_OUTPUT = 'add "output" to the corrected text below, with the absolute path of a directory that exists'
_ALONE = "one library of 2023 was run and one of 2026 read"


def acl_json_section(
    path: str,
    data: bytes,
    *,
    size: int | None = None,
    output: str = "",
    roots: Sequence[str] | None = None,
    daemon: DaemonFacts | None = None,
) -> Section:
    """What the runtime would do with the file, and what it should say instead where that is nothing.

    `size` is the file's where `data` is cut. `output`: directory, missing, not a directory, or empty if that is not
    known. `roots`: where the daemon looks for JOBs, None if that is not known. `daemon`: what it says of itself.
    """
    served = _Served(output, roots, daemon)
    findings = tuple(_findings(path, data, size if size is not None else len(data), served))
    has_text = any(finding.remedy in (_WRITE, _TO_RECORD, _NAME_OUTPUT) for finding in findings)
    return Section(path, findings, corrected_acl_json(data) if has_text else "")


@dataclass(frozen=True, slots=True)
class _Served:
    """What a board tells besides the file."""

    output: str
    roots: Sequence[str] | None
    daemon: DaemonFacts | None


def _findings(path: str, data: bytes, size: int, served: _Served) -> Iterator[Finding]:
    if size > LARGEST_BYTES:
        yield bad("acl-json", f"{size} bytes: the runtime reads no more than about 10 MiB, svp_acl_init fails", _MEND)
        return
    if size > len(data):
        yield unknown("acl-json", f"{size} bytes, of which {len(data)} were looked at")
        return
    try:
        loaded = load_acl_json(data, path)
    except FormatError as error:
        yield bad("acl-json", f"no JSON: {error.found}; svp_acl_init fails with 100000", _MEND)
        return
    if _is_deep(loaded):
        yield unknown("acl-json", f"it is nested deeper than {DEEPEST}: what the runtime makes of that is not known")
        return
    yield _values(loaded)
    if not isinstance(loaded, dict):
        return
    yield from _dump(loaded)
    profiler = loaded.get("profiler")
    if not isinstance(profiler, dict):
        yield _no_profiler(loaded)
        return
    yield from _keys(profiler)
    yield _switch(profiler)
    yield from _items(profiler)
    yield _interval(profiler)
    yield from _output(profiler, served)


def _is_deep(loaded: object) -> bool:
    level = [loaded]
    for _ in range(DEEPEST):
        level = [
            below
            for value in level
            for below in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
        ]
    return bool(level)


def _values(loaded: object) -> Finding:
    odd = list(_not_strings(loaded, ""))
    if not isinstance(loaded, dict):
        return bad("acl-json", "it holds no object", _WRITE)
    if odd:
        return bad("acl-json", f"not strings: {', '.join(odd)}; svp_acl_init fails with 100000", _WRITE)
    return good("acl-json", "JSON, every value a string")


def _not_strings(value: object, name: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _not_strings(below, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list):
        for below in value:
            yield from _not_strings(below, f"{name}[]")
    elif not isinstance(value, str):
        yield f"{name} = {value!r}"


def _no_profiler(loaded: Mapping[str, object]) -> Finding:
    meant = [key for key in loaded if key.casefold() == "profiler"]
    if meant:
        return bad("acl-switch", f"the key is {meant[0]!r}, not exactly 'profiler': nothing is recorded", _WRITE)
    return unknown(
        "acl-switch",
        "no object 'profiler': nothing is recorded, unless the program itself calls svp_acl_prof_init",
        _TO_RECORD,
    )


def _keys(profiler: Mapping[str, object]) -> Iterator[Finding]:
    odd = {key: meant for key in profiler if key not in PROFILER_KEYS and (meant := meant_key(key))}
    if odd:
        told = ", ".join(f"{key!r} (meant: {meant!r}?)" for key, meant in odd.items())
        yield bad("acl-keys", f"keys that the runtime does not know: {told}", _WRITE)


def _switch(profiler: Mapping[str, object]) -> Finding:
    switch = profiler.get("switch")
    if switch == "on":
        return good("acl-switch", "switch is 'on'")
    told = "there is no switch" if switch is None else f"switch is {switch!r}"
    return bad(
        "acl-switch",
        f"{told}: only 'on', exactly, records; svp_acl_prof_init is refused with 148047 all the same",
        _WRITE,
    )


def _items(profiler: Mapping[str, object]) -> Iterator[Finding]:
    recorded, wrong = [], []
    for item, (key, wanted, other) in ITEMS.items():
        value = profiler.get(key)
        if value == wanted:
            recorded.append(item)
        elif value is None and profiler.get(other) == wanted:
            wrong.append(f"{other!r} alone: the libraries read {key!r} ({_ALONE})")
        elif isinstance(value, str) and value.casefold() == wanted.casefold():
            wrong.append(f"{key} is {value!r}, and must be exactly {wanted!r}")
        elif key == "aic_metrics" and value is not None:
            wrong.append(f"{key} is {value!r}: only {wanted!r} records")
    told = f"recorded: {', '.join(recorded) or 'nothing'}"
    if wrong:
        yield bad("acl-items", f"{told}; {'; '.join(wrong)}", _WRITE)
    elif not recorded:
        yield bad("acl-items", "no item is on: profiling stays off", _WRITE)
    elif "aicore" not in recorded:
        yield unknown("acl-items", f"{told}: no layers, which is right only if they are not wanted")
    else:
        yield good("acl-items", told)


def _interval(profiler: Mapping[str, object]) -> Finding:
    value = profiler.get("interval", "0")
    if not isinstance(value, str):
        return bad("acl-interval", f"interval is {value!r}, and must be a string", _WRITE)
    interval = interval_of(value) if value else None
    if interval is None or interval > INTERVAL_MAX:
        return bad(
            "acl-interval", f"interval is {value!r}, no number from 0 to {INTERVAL_MAX}: profiling stays off", _WRITE
        )
    if interval == 0:
        return unknown(
            "acl-interval",
            "interval 0 records only the first inference after each load, which is right only if that is wanted",
            'for every inference: "interval": "1"',
        )
    return good(
        "acl-interval", f"every {interval}. inference is recorded" if interval > 1 else "every inference is recorded"
    )


def _output(profiler: Mapping[str, object], served: _Served) -> Iterator[Finding]:
    check, output = "acl-output", profiler.get("output")
    if not isinstance(output, str) or not output:
        yield bad(check, "there is no output: with the switch on the program crashes in svp_acl_init", _NAME_OUTPUT)
        return
    if plain_path(output).mark is Mark.BAD:
        yield plain_path(output)
    make = f"on the board: mkdir -p {shlex.quote(output)}"
    if not output.startswith("/"):
        yield unknown(
            check,
            f"{output!r} is relative: it begins in the directory that the program is started in",
            "write an absolute path, of a directory that exists",
        )
    elif served.output == "missing":
        yield bad(check, f"{output} does not exist: the JOB goes to the program's current directory", make)
    elif served.output == "not a directory":
        yield bad(check, f"{output} is no directory: the JOB goes to the program's current directory", make)
    elif served.roots is not None and not _is_below(output, served.roots):
        yield bad(
            check,
            f"{output} is below no root of the daemon: JOBs there are not found",
            given(served.daemon, f"add {output!r} to roots", f"--root {shlex.quote(output)} as well"),
        )
    elif served.output == "directory":
        yield good(check, f"{output} is a directory")
    else:
        yield unknown(check, f"{output}: whether it exists on the board cannot be seen from here", make)


def _dump(loaded: Mapping[str, Any]) -> Iterator[Finding]:
    dump = loaded.get("dump")
    if not dump or not isinstance(loaded.get("profiler"), dict):
        return
    switches = [value for key, value in dump.items() if "switch" in key] if isinstance(dump, dict) else []
    if switches and all(value == "off" for value in switches):
        yield good("acl-dump", "dump is switched off")
        return
    yield bad("acl-dump", "dump stands beside profiler: the manual forbids both at a time, figures are wrong", _WRITE)


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(f"{path.rstrip('/')}/".startswith(f"{root.rstrip('/')}/") for root in roots)
