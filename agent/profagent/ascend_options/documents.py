"""Check of documents of any kind: the options in them, what is wrong with these, and the corrected text. Pure."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from profagent.aclconfig.edit import PROFILER, ProfilerSettings, edited_acl_json
from profagent.ascend_options.checking import check_options, problems, shown
from profagent.ascend_options.environment import MODE, OPTIONS, environment_text, read_environment
from profagent.ascend_options.json_text import double_findings, known, one_line_json, read, slip_finding
from profagent.ascend_options.rules import MORE, Expression, all_rules
from profagent.ascend_options.script import BESIDE, POSITIONAL, place_of, read_script
from profagent.ascend_options.tables import plain, read_toml, tables, toml_text, typed
from profagent.doctor.acl_json import ITEMS, METRICS, PROFILER_KEYS, acl_json_section, is_meant_profiler, meant_key
from profagent.doctor.board import PLAIN_PATH
from profagent.doctor.finding import FindingMark, Section, bad, unknown
from profagent.errors import FormatError, UsageError
from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import INTERVAL_MAX, interval_of
from profagent.limits import LARGEST_OPTIONS_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from profagent.ascend_options.environment import Environment
    from profagent.ascend_options.json_text import JsonReading
    from profagent.ascend_options.script import OptionCall, OptionText
    from profagent.ascend_options.tables import OptionTable
    from profagent.doctor.finding import Finding

SS928, ATLAS = "ss928", "atlas"
# Fact that the options stand in a file, which cannot hold functions.
DOCUMENT = "(document)"
LINE_COLUMNS = 100
# Keys that only the acl.json of an SS928 has.
_SS928_KEYS = {"interval", "acl_api", "aacpu", "aac_metrics"}
_NO = {"", "off", "no", "false", "0", "none", "null", "disable", "disabled"}
# JSON text of an object. Comments before it are skipped, although JSON has none: people write them.
_OBJECT = re.compile(r"(?:[\s\ufeff]|//.*|/\*(?s:.*?)\*/)*+\{")
_EMPTY = re.compile(r"[\s\ufeff]*\{\s*\}\s*")
# An object within the text, which profiling_options never have.
_HAS_OBJECT = re.compile(r":\s*\{")
_BROKEN = "it cannot be read: nothing is recorded"
_HINT = (
    "name an acl.json, a text of profiling_options, a script with either, or with a Profiler(…) or profile(…) of"
    " MindSpore or torch_npu, JSON or TOML with their arguments, or a file that sets PROFILING_MODE"
)


class Result(NamedTuple):
    """Findings about one set of options, and the corrected text; None if they are right or cannot be corrected."""

    section: Section
    corrected: str | None = None


def check_documents(documents: Mapping[str, bytes], device: str | None) -> list[Result]:
    """Check all documents; an acl.json among them provides facts for the scripts. Raises UsageError."""
    texts = {name: _text(name, data) for name, data in documents.items()}
    configs = {name: results for name, text in texts.items() if (results := _config_results(name, text))}
    acl_json = {name for name, text in texts.items() if _is_acl_json(text) and name not in configs}
    environments = {name: found for name, text in texts.items() if (found := read_environment(text))}
    # A script's rules depend on the documents beside it, so these are read first.
    is_enabled = any(_blocks_own_profiling(texts[name], device) for name in acl_json)
    facts = {"acl.json"} if is_enabled else {"(acl.json)"} if acl_json else set()
    facts |= {MODE for each in environments.values() if each.values.get(MODE) not in {None, "", "false"}}
    results = []
    for name, text in texts.items():
        if name in configs:
            results += configs[name]
        elif name in acl_json:
            results.append(_acl_json_result(name, documents[name], text, device))
        elif _is_json(text):
            results.append(_options_result(name, text))
        elif name in environments:
            results.append(_environment_result(name, environments[name]))
        else:
            results += _script_results(name, text, facts)
    return results


def call_text(name: str, given: Mapping[str, object]) -> str:
    """Return a call with these arguments, on several lines if one line would be too long."""
    arguments = [f"{key}={shown(value)}" for key, value in given.items()]
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= LINE_COLUMNS else "\n".join([f"{name}(", *(f"    {each}," for each in arguments), ")"])


def _text(name: str, data: bytes) -> str:
    if len(data) > LARGEST_OPTIONS_BYTES:
        raise UsageError(f"{name} has more than 1 MiB", hint=_HINT)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text: byte {error.start}", hint=_HINT) from error


def _is_json(text: str) -> bool:
    return _OBJECT.match(text) is not None


def _is_acl_json(text: str) -> bool:
    return _is_json(text) and (_HAS_OBJECT.search(text) is not None or _EMPTY.fullmatch(text) is not None)


def _config_results(name: str, text: str) -> list[Result]:
    if _is_json(text):
        reading = _read(text)
        write = partial(json.dumps, indent=4, ensure_ascii=False)
        return _table_results(name, reading.value, double_findings(reading), write)
    value, is_meant = read_toml(text), name.endswith(".toml")
    if isinstance(value, str):
        return [Result(Section(name, (bad("toml", f"it is no TOML: {value}"),)))] if is_meant else []
    found = _table_results(name, value, [], toml_text)
    if is_meant and not found:
        raise UsageError(f"{name} has no options of profiling", hint=_HINT)
    return found


def _table_results(
    name: str, value: object, doubled: list[Finding], write: Callable[[Mapping[str, object]], str]
) -> list[Result]:
    try:
        found = list(tables(value))
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deep", hint=_HINT) from error
    results: list[Result] = []
    changed: dict[tuple[str, ...], Mapping[str, object]] = {}
    # Inner tables are checked first, because the corrected text of an outer table contains theirs.
    for table in reversed(found):
        findings = _table_findings(table, changed)
        about = " ".join((name, ".".join(table.path))).strip()
        section = Section(f"{about}: {all_rules().families[table.family].title}", findings)
        is_written = table.path in changed or bool(doubled)
        results.append(Result(section, write(changed.get(table.path, table.given)) if is_written else None))
    results.reverse()
    if doubled and results:
        first = results[0]
        section = Section(first.section.about, (*doubled, *problems(first.section.findings)))
        results[0] = first._replace(section=section)
    return results


def _table_findings(table: OptionTable, changed: dict[tuple[str, ...], Mapping[str, object]]) -> tuple[Finding, ...]:
    """Return the findings of a table; a corrected table is added to `changed`."""
    given = typed(all_rules().keys_of(table.family), table.given)
    found = check_options(table.family, given, {DOCUMENT})
    inner = {key: changed[(*table.path, key)] for key in table.given if (*table.path, key) in changed}
    # The texts are compared, because 1 and True are equal as values.
    if inner or repr(found.corrected) != repr(given):
        changed[table.path] = {
            key: inner.get(key, table.given.get(key)) if isinstance(value, Expression) else plain(value)
            for key, value in found.corrected.items()
        }
    return found.findings


def _environment_result(name: str, found: Environment) -> Result:
    both = check_options("environment", found.values)
    right, findings = dict(both.corrected), list(both.findings)
    if found.lost_quotes():
        why = f"the shell takes the quotes out of {OPTIONS}: {found.values[OPTIONS]}; nothing is recorded"
        findings.append(bad("json", why, "put the whole text between '…'"))
    is_broken = False
    if (text := found.meant_options()) is not None:
        is_broken = _read(text).slip is not None
        options = _options_result(name, text)
        right[OPTIONS] = options.corrected or text
        findings = [*problems(findings), *options.section.findings]
    if any(each.mark is FindingMark.BAD for each in findings):
        findings = list(problems(findings))
    is_computed = any(isinstance(value, Expression) for value in right.values())
    # A text that a shell computes, or that is broken, has no certain correction.
    is_uncorrected = is_broken or is_computed or right == found.values
    corrected = None if is_uncorrected else environment_text(right, is_shell=found.is_shell)
    return Result(Section(f"{name} (environment)", tuple(findings)), corrected)


def _profiler(value: object) -> dict[str, object] | None:
    found = value.get(PROFILER) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else None


def _with_profiler_key(value: object) -> object:
    if not isinstance(value, dict):
        return value
    # A key that is exactly `profiler` counts, whatever misspelling of it stands beside it.
    slips = [key for key in value if is_meant_profiler(key)]
    meant = PROFILER if PROFILER in value else "".join(slips[:1])
    return {PROFILER if key == meant else key: value[key] for key in value if key == meant or key not in slips}


def _device(profiler: Mapping[str, object] | None, device: str | None) -> str:
    if device is not None:
        return device
    others = all_rules().keys_of("acl_json").keys() - set(PROFILER_KEYS)
    named = set(profiler or ())
    return ATLAS if named & others and not named & _SS928_KEYS else SS928


def _blocks_own_profiling(text: str, device: str | None) -> bool:
    """Return True if acl.init with this file makes acl.prof.init fail; on an SS928 it does even with the switch off."""
    profiler = _profiler(_acl_json_value(_read(text), text))
    if profiler is None:
        return False
    if _device(profiler, device) == ATLAS:
        return profiler.get("switch") == "on"
    return any(profiler.get(key) == wanted for key, wanted, _ in ITEMS.values())


def _read(text: str) -> JsonReading:
    try:
        return read(text)
    except RecursionError as error:
        raise UsageError("the JSON is nested too deep", hint=_HINT) from error


def _acl_json_value(reading: JsonReading, text: str) -> object:
    """Return the value of an acl.json, also of text that only an SS928's runtime accepts; None if it is broken."""
    if reading.slip is None:
        return reading.value
    try:
        return load_acl_json(text.encode(), "acl.json")
    except FormatError:
        return None


def _acl_json_result(name: str, data: bytes, text: str, device: str | None) -> Result:
    reading = _read(text)
    value = _acl_json_value(reading, text)
    meant = _with_profiler_key(value)
    profiler = _profiler(meant)
    is_ss928 = _device(profiler, device) == SS928
    if reading.slip and (value is None or not is_ss928):
        return Result(Section(name, (slip_finding(text, reading.slip, _BROKEN),)))
    if is_ss928:
        section = acl_json_section(f"{name} (SS928{'' if device else '; --device atlas: other Ascend devices'})", data)
        return Result(section, None if section.is_good else _corrected_ss928(value, name))
    about = f"{name} (Atlas)"
    if profiler is None:
        return Result(Section(about, (bad("switch", "no object 'profiler': nothing is recorded", "add one"),)))
    found = check_options("acl_json", profiler)
    assert isinstance(meant, dict)
    right = json.dumps({**meant, PROFILER: found.corrected}, indent=4, ensure_ascii=False)
    findings = (*double_findings(reading), *found.findings)
    is_called_so = _profiler(value) is not None
    if not is_called_so:
        why = "no key is exactly 'profiler': nothing is recorded"
        findings = (bad("switch", why, "take the corrected text"), *problems(findings))
    is_right = is_called_so and found.corrected == profiler
    return Result(Section(about, findings), None if is_right else right)


def _corrected_ss928(value: object, name: str) -> str | None:
    """Return an SS928's acl.json with its slips corrected; None without an output, which only the owner knows."""
    value = _with_profiler_key(value)
    given = _profiler(value) or {}
    # A key with the right name counts, whatever misspelling of it stands beside it: it comes last and replaces the
    # other.
    own = {meant: given[key] for key in sorted(given, key=PROFILER_KEYS.__contains__) if (meant := meant_key(key))}
    for key in {"acl_api", "aicpu", "aacpu"} & own.keys():
        own[key] = "off" if str(own[key]).casefold() in _NO else "on"
    if isinstance(output := own.get("output"), str):
        plain = (each if PLAIN_PATH.fullmatch(each) else "_" if each.isprintable() else "" for each in output)
        own["output"] = "".join(plain)
    text = str(own.get("interval", "0"))
    interval = interval_of(text)
    if not text or interval is None or interval > INTERVAL_MAX:
        del own["interval"]
    metrics = METRICS if own.keys() & {"aic_metrics", "aac_metrics"} else None
    corrected = {**value, PROFILER: own} if isinstance(value, dict) else {PROFILER: own}
    try:
        data = json.dumps(corrected).encode("utf-8", "surrogateescape")
        return edited_acl_json(
            data, ProfilerSettings(switch="on", aac_metrics=metrics), name, without_dump=True
        ).rstrip()
    except UsageError:
        return None


def _options_result(about: str, text: str, place: tuple[int, int] | None = None) -> Result:
    reading = _read(text)
    if slip := reading.slip:
        slip = slip._replace(line=place[0], column=place[1]) if place else slip
        return Result(Section(about, (slip_finding(text, slip, _BROKEN),)))
    if not isinstance(reading.value, dict):
        return Result(Section(about, (bad("json", "it holds no object", "write {…}"),)))
    given = {name: known(value) for name, value in reading.value.items()}
    found = check_options("profiling_options", given)
    section = Section(about, (*double_findings(reading), *found.findings))
    return Result(section, None if found.corrected == given else one_line_json(found.corrected))


def _script_results(name: str, source: str, facts: set[str]) -> Iterator[Result]:
    """Yield the results of a Python script: one of the script itself, then one for each text of options and each call.

    `facts` are conditions outside of the options that the caller knows, such as the device; the script adds its own.
    Raises UsageError if it has nothing about profiling: facts of BESIDE alone do not count.
    """
    script = read_script(source)
    of_script = check_options("script", {}, script.facts | facts).findings
    if script.error:
        error = f"it is no Python: {script.error}"
        rest = "; only texts in braces were looked at"
        of_script = (unknown("python", error + rest) if script.texts else bad("python", error),)
    elif not (script.calls or script.texts or script.facts - BESIDE):
        raise UsageError(f"{name} has no options of profiling", hint=_HINT)
    if of_script:
        yield Result(Section(name, of_script))
    for found in script.texts:
        yield _text_result(name, source, found)
    yield from _call_results(name, script.calls)
    if not (of_script or script.texts or script.calls):
        yield Result(Section(name, (unknown("script", "it profiles, and has no options that can be checked"),)))


def _text_result(name: str, source: str, found: OptionText) -> Result:
    about = f"{name}:{found.line} profiling_options"
    slip = _read(found.text).slip
    place = place_of(source, found, slip.at) if slip else None
    return _options_result(about if place or not slip else f"{about}, counted from its beginning", found.text, place)


def _call_results(name: str, calls: list[OptionCall]) -> Iterator[Result]:
    for call in calls:
        found = check_options(call.family, call.given, call.facts)
        text = call_text(call.name, found.corrected)
        # The texts are compared, because 1 and True are equal as values.
        is_changed = text != call_text(call.name, call.given)
        # A call with arguments whose names are unknown cannot be written anew.
        is_whole = call.facts.isdisjoint((POSITIONAL, MORE))
        section = Section(f"{name}:{call.line} {call.name}(…)", found.findings)
        yield Result(section, text if is_changed and is_whole else None)
