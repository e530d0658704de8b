"""Checks of an acl.json for what keeps the runtime from recording with it (the-format.md 5)."""

from __future__ import annotations

import difflib
import re
import shlex
from typing import TYPE_CHECKING

from profagent.doctor.board import daemon_remedy, plain_path
from profagent.doctor.checks import CHECKS
from profagent.doctor.finding import Finding, FindingMark, Section, bad, good, unknown
from profagent.errors import FormatError
from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import INTERVAL_MAX, interval_of
from profagent.limits import LARGEST_ACL_JSON_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


METRICS = "ArithmeticUtilization"
PROFILER_KEYS = ("switch", "output", "interval", "acl_api", "aicpu", "aacpu", "aic_metrics", "aac_metrics")
# Item: the key that libraries read, the value that records, and the manual's spelling of the key.
ITEMS = {
    "aicore": ("aic_metrics", METRICS, "aac_metrics"),
    "aicpu": ("aicpu", "on", "aacpu"),
    "acl_api": ("acl_api", "on", ""),
}
# Similarity (difflib's ratio, 0 to 1) from which an unknown key counts as a misspelling of a known one.
_ALIKE = 0.8
_SET = CHECKS["acl-switch"].remedy


def acl_json_section(
    path: str,
    data: bytes,
    *,
    size: int | None = None,
    output: str = "",
    roots: Sequence[str] | None = None,
) -> Section:
    """Return the findings about an acl.json.

    `data` may be cut; `size` is then the file's size in bytes. `output` is the state of the output directory:
    directory, missing, not a directory, or empty if it is not known. `roots` are the daemon's roots, None if they are
    not known.
    """
    size = len(data) if size is None else size
    if size > LARGEST_ACL_JSON_BYTES:
        why = f"{size} bytes: the runtime reads no more than about 10 MiB, svp_acl_init fails"
        return Section(path, (bad("acl-json", why),))
    # A file that was read in part cannot be parsed, and a parse error would blame the user for it.
    if size > len(data):
        return Section(
            path, (unknown("acl-json", f"only {len(data)} of its {size} bytes were read, so it was not checked"),)
        )
    try:
        loaded = load_acl_json(data, path)
        return Section(path, tuple(_findings(loaded, output, roots)))
    except FormatError as error:
        why = f"not valid JSON: {error.found}; svp_acl_init fails with 100000"
        return Section(path, (bad("acl-json", why),))
    # The JSON parser recurses once for each level of nesting, and the file may be anything.
    except RecursionError:
        return Section(path, (unknown("acl-json", "it was not checked, because its JSON is nested too deep"),))


def meant_key(key: str) -> str | None:
    """Return the key of `profiler` that this key is or misspells; None if it resembles none of them."""
    if key in PROFILER_KEYS:
        return key
    plain = re.sub(r"[^a-z]", "", key.casefold())
    by_plain = {name.replace("_", ""): name for name in PROFILER_KEYS}
    alike = difflib.get_close_matches(plain, by_plain, n=1, cutoff=_ALIKE)
    return by_plain[alike[0]] if alike else None


def is_meant_profiler(key: str) -> bool:
    """Return True if a key of the file is `profiler` or a misspelling of it."""
    return bool(difflib.get_close_matches(key.casefold(), ["profiler"], cutoff=_ALIKE))


def _findings(loaded: object, output: str, roots: Sequence[str] | None) -> Iterator[Finding]:
    if not isinstance(loaded, dict):
        yield bad("acl-json", "the file is JSON, but not an object", _SET)
        return
    odd = ", ".join(_not_strings(loaded, ""))
    if odd:
        yield bad("acl-json", f"values that are not strings: {odd}; svp_acl_init fails with 100000", _SET)
    else:
        yield good("acl-json", "JSON, every value a string")
    profiler = loaded.get("profiler")
    if not isinstance(profiler, dict):
        yield _no_profiler(loaded)
        return
    yield from _dump(loaded.get("dump"))
    slips = {key: meant for key in profiler if key not in PROFILER_KEYS and (meant := meant_key(key))}
    if slips:
        evidence = ", ".join(f"{key!r} (meant: {meant!r}?)" for key, meant in slips.items())
        yield bad("acl-keys", f"keys that the runtime does not know: {evidence}")
    if others := [key for key in profiler if meant_key(key) is None]:
        evidence = ", ".join(map(repr, others))
        yield unknown("acl-keys", f"keys that the runtime does not know, and ignores: {evidence}", "leave them out")
    yield _switch(profiler.get("switch"))
    yield _items(profiler)
    yield _interval(profiler.get("interval", "0"))
    yield from _output(profiler.get("output"), output, roots)


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
    meant = [key for key in loaded if key != "profiler" and is_meant_profiler(key)]
    if meant:
        why = f"the key is {meant[0]!r}, not exactly 'profiler': nothing is recorded"
        return bad("acl-switch", why, "write it as 'profiler'")
    why = "no object 'profiler': nothing is recorded, unless the program itself calls svp_acl_prof_init"
    return unknown("acl-switch", why, _SET)


def _dump(dump: object) -> Iterator[Finding]:
    if not dump:
        return
    switches = [value for key, value in dump.items() if "switch" in key] if isinstance(dump, dict) else []
    if switches and all(value == "off" for value in switches):
        yield good("acl-dump", "dump is switched off")
    else:
        why = "the file has both dump and profiler, which the manual forbids: figures are wrong"
        yield bad("acl-dump", why)


def _switch(switch: object) -> Finding:
    if switch == "on":
        return good("acl-switch", "switch is 'on'")
    evidence = "there is no switch" if switch is None else f"switch is {switch!r}"
    why = f"{evidence}: the runtime records only with exactly 'on'; svp_acl_prof_init still fails with 148047"
    return bad("acl-switch", why)


def _items(profiler: Mapping[str, object]) -> Finding:
    recorded, wrong = [], []
    for item, (key, wanted, other) in ITEMS.items():
        value = profiler.get(key)
        if value == wanted:
            recorded.append(item)
        elif value is None and profiler.get(other) == wanted:
            wrong.append(f"{other!r} alone: the libraries read {key!r}")
        elif isinstance(value, str) and value.casefold() == wanted.casefold():
            wrong.append(f"{key} is {value!r}, and must be exactly {wanted!r}")
        elif value is not None and (key == "aic_metrics" or value not in ("", "off")):
            wrong.append(f"{key} is {value!r}: only {wanted!r} records")
    evidence = f"recorded: {', '.join(recorded) or 'nothing'}"
    if wrong:
        return bad("acl-items", f"{evidence}; {'; '.join(wrong)}")
    if not recorded:
        return bad("acl-items", "no item is on: profiling stays off")
    if "aicore" not in recorded:
        return unknown("acl-items", f"{evidence}: layers are not recorded, which is right only if you do not want them")
    return good("acl-items", evidence)


def _interval(value: object) -> Finding:
    check = "acl-interval"
    if not isinstance(value, str):
        return bad(check, f"interval is {value!r}, and must be a string")
    interval = interval_of(value) if value else None
    if interval is None or interval > INTERVAL_MAX:
        return bad(check, f"interval is {value!r}, no number from 0 to {INTERVAL_MAX}: profiling stays off")
    if interval == 0:
        why = "interval 0 records only the first inference after each load, which is right only if you want that"
        return unknown(check, why, 'for every inference: "interval": "1"')
    return good(check, f"every {interval}. inference is recorded" if interval > 1 else "every inference is recorded")


def _output(output: object, state: str, roots: Sequence[str] | None) -> Iterator[Finding]:
    check = "acl-output"
    if not isinstance(output, str) or not output:
        yield bad(check, "there is no output directory: with the switch on, the program crashes in svp_acl_init")
        return
    if (path := plain_path(output)).mark is FindingMark.BAD:
        yield path
    make = f"on the board: mkdir -p {shlex.quote(output)}"
    if not output.startswith("/"):
        why = f"{output!r} is relative to the directory in which the program is started"
        yield unknown(check, why, "write an absolute path, of a directory that exists")
    elif state in ("missing", "not a directory"):
        evidence = "does not exist" if state == "missing" else "is not a directory"
        yield bad(check, f"{output} {evidence}: the JOB goes to the program's current directory", make)
    elif roots is not None and not any(f"{output}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        remedy = daemon_remedy(f"add {output!r} to roots", f"--root {shlex.quote(output)}")
        yield bad(check, f"{output} is below no root of the daemon, so the daemon does not find JOBs there", remedy)
    elif state == "directory":
        yield good(check, f"{output} is a directory")
    else:
        yield unknown(check, f"{output}: this check cannot see whether the directory exists on the board", make)
