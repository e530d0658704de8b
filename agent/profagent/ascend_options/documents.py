"""What people hand in, whatever it is: which options it has, what is wrong with them, and the corrected text. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from profagent.aclconfig.edit import PROFILER, Profiler, edited_acl_json
from profagent.ascend_options.checking import checked, problems, shown
from profagent.ascend_options.environment import MODE, OPTIONS, environment_text, read_environment
from profagent.ascend_options.json_text import BEHIND_NAME, known, read, slip_findings, written
from profagent.ascend_options.rules import MORE, Expression, all_rules
from profagent.ascend_options.script import BESIDE, POSITIONAL, place_of, read_script
from profagent.ascend_options.tables import plain, read_toml, tables, toml_text, typed
from profagent.doctor.acl_json import ITEMS, METRICS, PROFILER_KEYS, acl_json_section, is_meant_profiler, meant_key
from profagent.doctor.board import PLAIN_PATH
from profagent.doctor.finding import Mark, Section, bad, unknown
from profagent.errors import FormatError, UsageError
from profagent.formats.board_files import load_acl_json
from profagent.formats.sampling import INTERVAL_MAX, interval_of
from profagent.limits import LARGEST_OPTIONS_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from profagent.ascend_options.environment import Environment
    from profagent.ascend_options.json_text import Reading, Slip
    from profagent.ascend_options.script import OptionCall, OptionText
    from profagent.ascend_options.tables import Table
    from profagent.doctor.finding import Finding

SS928, ATLAS = "ss928", "atlas"
# A fact: the options stand in a file, which holds no functions.
DOCUMENT = "(document)"
LINE_COLUMNS = 100
# What an SS928's acl.json has and no other's.
_SS928_KEYS = {"interval", "acl_api", "aacpu", "aac_metrics"}
_NO = {"", "off", "no", "false", "0", "none", "null", "disable", "disabled"}
# What it is, is told behind comments, too, which JSON has not.
_OBJECT = re.compile(r"(?:[\s\ufeff]|//.*|/\*(?s:.*?)\*/)*+\{")
_EMPTY = re.compile(r"[\s\ufeff]*\{\s*\}\s*")
# An object in it, which profiling_options have not.
_HAS_OBJECT = re.compile(rf"{BEHIND_NAME}\s*\{{")
_HINT = (
    "name an acl.json, a text of profiling_options, a script with either, or with a Profiler(…) or profile(…) of"
    " MindSpore or torch_npu, JSON or TOML with their arguments, or a file that sets PROFILING_MODE"
)


class Result(NamedTuple):
    """What was found of one set of options, and the text as it should be; None where it is right or cannot be told."""

    section: Section
    corrected: str | None = None


def check_documents(documents: Mapping[str, bytes], device: str | None) -> list[Result]:
    """Check them all; an acl.json among them counts for the scripts beside it. Raises UsageError."""
    texts = {name: _text(name, data) for name, data in documents.items()}
    configs = {name: results for name, text in texts.items() if (results := _tables(name, text))}
    acl_json = {name for name, text in texts.items() if _is_acl_json(text) and name not in configs}
    environments = {name: found for name, text in texts.items() if (found := read_environment(text))}
    is_enabled = any(_enables(texts[name], device) for name in acl_json)
    facts = {"acl.json"} if is_enabled else {"(acl.json)"} if acl_json else set()
    facts |= {MODE for each in environments.values() if each.values.get(MODE) not in {None, "", "false"}}
    results = []
    for name, text in texts.items():
        if name in configs:
            results += configs[name]
        elif name in acl_json:
            results.append(_acl_json(name, documents[name], text, device))
        elif _is_json(text):
            results.append(_options(name, text))
        elif name in environments:
            results.append(_environment(name, environments[name]))
        else:
            results += _script(name, text, facts)
    return results


def call_text(name: str, given: Mapping[str, object]) -> str:
    """A call with these arguments, on several lines where one is too long."""
    arguments = [f"{key}={shown(value)}" for key, value in given.items()]
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= LINE_COLUMNS else "\n".join([f"{name}(", *(f"    {each}," for each in arguments), ")"])


def _text(name: str, data: bytes) -> str:
    if len(data) > LARGEST_OPTIONS_BYTES:
        raise UsageError(f"{name} has more than 1 MiB", hint=_HINT)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is no text in UTF-8: byte {error.start}", hint=_HINT) from error


def _is_json(text: str) -> bool:
    return _OBJECT.match(text) is not None


def _is_acl_json(text: str) -> bool:
    """Return True for JSON that has an object in it; an empty one is no text of options, but a file without any."""
    return _is_json(text) and (_HAS_OBJECT.search(text) is not None or _EMPTY.fullmatch(text) is not None)


def _tables(name: str, text: str) -> list[Result]:
    """What is found in torch_npu's arguments of a file in JSON or TOML; nothing where it has none."""
    if _is_json(text):
        reading = _read(text)
        broken = slip_findings(text, reading, "it cannot be read: nothing is recorded")
        if reading.slip and text.count("{") > 1 and any(tables(reading.value)):
            # Which table its members are of cannot be told.
            return [Result(Section(name, (replace(broken[0], remedy="mend it, then check it again"),)))]
        return _of_tables(name, reading.value, broken, partial(json.dumps, indent=4, ensure_ascii=False))
    value, is_meant = read_toml(text), name.endswith(".toml")
    if isinstance(value, str):
        return [Result(Section(name, (bad("toml", f"it is no TOML: {value}", "mend it"),)))] if is_meant else []
    found = _of_tables(name, value, [], toml_text)
    if is_meant and not found:
        raise UsageError(f"{name} has no options of profiling", hint=_HINT)
    return found


def _of_tables(
    name: str, value: object, broken: list[Finding], write: Callable[[Mapping[str, object]], str]
) -> list[Result]:
    """Each table's findings, and its corrected text with those in it."""
    try:
        found = list(tables(value))
    except RecursionError as error:
        raise UsageError(f"{name} is nested too deep", hint=_HINT) from error
    results: list[Result] = []
    changed: dict[tuple[str, ...], Mapping[str, object]] = {}
    for table in reversed(found):
        findings = _table(table, changed)
        about = " ".join((name, ".".join(table.path))).strip()
        section = Section(f"{about}: {all_rules().families[table.family].title}", findings)
        is_written = table.path in changed or bool(broken)
        results.append(Result(section, write(changed.get(table.path, table.given)) if is_written else None))
    results.reverse()
    if broken and results:
        first = results[0]
        section = Section(first.section.about, (*broken, *problems(first.section.findings)))
        results[0] = first._replace(section=section)
    return results


def _table(table: Table, changed: dict[tuple[str, ...], Mapping[str, object]]) -> tuple[Finding, ...]:
    """What is found in a table; if it, or one in it, has to be another, that is put among those that changed."""
    given = typed(all_rules().keys_of(table.family), table.given)
    found = checked(table.family, given, {DOCUMENT})
    inner = {key: changed[(*table.path, key)] for key in table.given if (*table.path, key) in changed}
    # As text: 1 is no True.
    if inner or repr(found.corrected) != repr(given):
        changed[table.path] = {
            key: inner.get(key, table.given.get(key)) if isinstance(value, Expression) else plain(value)
            for key, value in found.corrected.items()
        }
    return found.findings


def _environment(name: str, found: Environment) -> Result:
    """The two variables together, and the JSON of the second."""
    both = checked("environment", found.values)
    right, findings = dict(both.corrected), list(both.findings)
    if found.lost_quotes():
        why = f"the shell takes the quotes out of {OPTIONS}: {found.values[OPTIONS]}; nothing is recorded"
        findings.append(bad("json", why, "put the whole text between '…'"))
    if (text := found.meant_options()) is not None:
        options = _options(name, text)
        right[OPTIONS] = options.corrected or text
        findings = [*problems(findings), *options.section.findings]
    if any(each.mark is Mark.BAD for each in findings):
        findings = list(problems(findings))
    is_computed = any(isinstance(value, Expression) for value in right.values())
    is_right = is_computed or right == found.values
    corrected = None if is_right else environment_text(right, is_shell=found.is_shell)
    return Result(Section(f"{name} (environment)", tuple(findings)), corrected)


def _profiler(value: object) -> dict[str, object] | None:
    found = value.get(PROFILER) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else None


def _meant(value: object) -> object:
    """A file with its `profiler` called so: what is called right counts, whatever slip of it stands beside it."""
    if not isinstance(value, dict):
        return value
    slips = [key for key in value if is_meant_profiler(key)]
    meant = PROFILER if PROFILER in value else "".join(slips[:1])
    return {PROFILER if key == meant else key: value[key] for key in value if key == meant or key not in slips}


def _device(profiler: Mapping[str, object] | None, device: str | None) -> str:
    """Whose file it is, by keys that only one of them has; an SS928's where none tells."""
    if device is not None:
        return device
    others = all_rules().keys_of("acl_json").keys() - set(PROFILER_KEYS)
    named = set(profiler or ())
    return ATLAS if named & others and not named & _SS928_KEYS else SS928


def _enables(text: str, device: str | None) -> bool:
    """Whether acl.init with this file leaves no way for acl.prof.init: on an SS928 also with the switch off."""
    profiler = _profiler(_read(text).value)
    if profiler is None:
        return False
    if _device(profiler, device) == ATLAS:
        return profiler.get("switch") == "on"
    return any(profiler.get(key) == wanted for key, wanted, _ in ITEMS.values())


def _read(text: str) -> Reading:
    try:
        return read(text)
    except RecursionError as error:
        raise UsageError("the JSON is nested too deep", hint=_HINT) from error


def _acl_json(name: str, data: bytes, text: str, device: str | None) -> Result:
    reading = _read(text)
    meant = _meant(reading.value)
    profiler = _profiler(meant)
    if _device(profiler, device) == SS928:
        return _ss928_acl_json(name, data, text, reading, is_told=device is not None)
    about = f"{name} (Atlas)"
    if profiler is None:
        return Result(Section(about, (bad("switch", "no object 'profiler': nothing is recorded", "add one"),)))
    found = checked("acl_json", profiler)
    assert isinstance(meant, dict)
    right = json.dumps({**meant, PROFILER: found.corrected}, indent=4, ensure_ascii=False)
    section = _section(about, text, reading, found.findings, "acl_json")
    if reading.slip:
        section = Section(about, (*section.findings, *_left_out(text, reading.value)))
    is_called_so = _profiler(reading.value) is not None
    if not is_called_so:
        why = "no key is exactly 'profiler': nothing is recorded"
        section = Section(about, (bad("switch", why, "take the corrected text"), *problems(section.findings)))
    is_right = is_called_so and reading.slip is None and found.corrected == profiler
    return Result(section, None if is_right else right)


def _ss928_acl_json(name: str, data: bytes, text: str, reading: Reading, *, is_told: bool) -> Result:
    """`aclconfig check` of the file; of a broken one also of what can be told of it."""
    about = f"{name} (SS928{'' if is_told else '; --device atlas: other Ascend devices'})"
    broken: list[Finding] = []
    try:
        value = load_acl_json(data, name)
    except FormatError:
        value = reading.value
        broken = slip_findings(text, reading, "svp_acl_init fails with 100000")
        broken += _left_out(text, value)
        data = json.dumps(value).encode("utf-8", "surrogateescape")
    section = acl_json_section(about, data)
    if broken:
        section = Section(about, (*broken, *problems(section.findings)))
    return Result(section, None if section.is_good else _mended(value, name))


def _left_out(text: str, value: object) -> list[Finding]:
    """What is told of a broken acl.json with more objects than `profiler`, which alone was understood."""
    is_alone = isinstance(value, dict) and value.keys() == {PROFILER}
    is_more = is_alone and text.count("{") > 2  # its own, and that of `profiler`
    return [unknown("json", "what stands beside 'profiler' is not in the corrected text")] if is_more else []


def _section(about: str, text: str, reading: Reading, findings: tuple[Finding, ...], family: str) -> Section:
    """With what is wrong with the JSON itself; of a broken text the runtime takes nothing."""
    broken = slip_findings(text, reading, all_rules().families[family].wrong)
    rest = findings if reading.slip is None else problems(findings)
    return Section(about, (*broken, *rest))


def _mended(value: object, name: str) -> str | None:
    """An SS928's acl.json with its slips mended; None where it names no output, which nobody but its owner knows."""
    value = _meant(value)
    given = _profiler(value) or {}
    # What is called right counts, whatever slip of it stands beside it.
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
    kept = {**value, PROFILER: own} if isinstance(value, dict) else {PROFILER: own}
    try:
        data = json.dumps(kept).encode("utf-8", "surrogateescape")
        return edited_acl_json(data, Profiler(switch="on", aac_metrics=metrics), name, without_dump=True).rstrip()
    except UsageError:
        return None


def _options(about: str, text: str, place: tuple[int, int] | None = None) -> Result:
    reading = _read(text)
    if not isinstance(reading.value, dict):
        return Result(Section(about, (bad("json", "it holds no object", "write {…}"),)))
    given = {name: known(value) for name, value in reading.value.items()}
    found = checked("profiling_options", given)
    section = _section(
        about, text, reading._replace(slip=_moved(reading.slip, place)), found.findings, "profiling_options"
    )
    is_right = reading.slip is None and found.corrected == given
    return Result(section, None if is_right else written(found.corrected))


def _moved(slip: Slip | None, place: tuple[int, int] | None) -> Slip | None:
    """The slip where it stands in the file that the text is a part of."""
    return slip._replace(line=place[0], column=place[1]) if slip and place else slip


def _script(name: str, source: str, facts: set[str]) -> Iterator[Result]:
    script = read_script(source)
    whole = checked("script", {}, script.facts | facts).findings
    if script.error:
        said = f"it is no Python: {script.error}"
        rest = "; only texts in braces were looked at"
        whole = (
            unknown("python", said + rest) if script.texts else bad("python", said, "mend it, then check it again"),
        )
    elif not (script.calls or script.texts or script.facts - BESIDE):
        raise UsageError(f"{name} has no options of profiling", hint=_HINT)
    if whole:
        yield Result(Section(name, whole))
    for found in script.texts:
        yield _text_of_script(name, source, found)
    yield from _calls(name, script.calls)
    if not (whole or script.texts or script.calls):
        yield Result(Section(name, (unknown("script", "it profiles, and has no options that can be checked"),)))


def _text_of_script(name: str, source: str, found: OptionText) -> Result:
    about = f"{name}:{found.line} profiling_options"
    slip = _read(found.text).slip
    place = place_of(source, found, slip.at) if slip else None
    return _options(about if place or not slip else f"{about}, counted from its beginning", found.text, place)


def _calls(name: str, calls: list[OptionCall]) -> Iterator[Result]:
    """Each call; one that stands in another is corrected there, too."""
    results = []
    inner: dict[str, str] = {}
    wrong: list[str] = []
    for call in reversed(calls):
        found = checked(call.family, call.given, call.facts)
        section = Section(f"{name}:{call.line} {call.name}(…)", found.findings)
        text = call_text(call.name, found.corrected)
        for before, after in inner.items():
            text = text.replace(before, after)
        # As text: 1 is no True.
        is_changed = text != call_text(call.name, call.given)
        # What has no name here cannot be written.
        is_told = call.facts.isdisjoint((POSITIONAL, MORE)) and not any(each in call.source for each in wrong)
        if is_changed and is_told:
            inner[call.source] = text
        elif not section.is_good:
            wrong.append(call.source)
        results.append(Result(section, text if is_changed and is_told else None))
    return reversed(results)
