"""Check of the options of one place: what is wrong, what the runtime would do, and the corrected options. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from profagent.ascend_options.rules import MORE, Expression, Member, all_rules, nearest
from profagent.doctor.finding import Finding, FindingMark, bad, good

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from profagent.ascend_options.rules import Key, OptionRule

OFF = ("off", "", False, None)


class CheckedOptions(NamedTuple):
    """Findings about options, and the corrected options."""

    findings: tuple[Finding, ...]
    corrected: dict[str, object]


def check_options(family: str, given: Mapping[str, object], facts: Collection[str] = ()) -> CheckedOptions:
    """Check the options of a family; `facts` are other known facts about their place, by the names in `rules.toml`.

    With MORE among the facts there are options that cannot be seen: then no option is known to be absent, or to
    have its default.
    """
    keys = all_rules().keys_of(family)
    if MORE in facts:
        # An unseen option may replace any default, so no default is known.
        keys = {name: msgspec.structs.replace(key, default=Expression("…")) for name, key in keys.items()}
    # Spelling of each key in the document, which the corrected text keeps.
    spelled: dict[str, str] = {}
    options: dict[str, object] = {}
    findings = []
    for name, value in given.items():
        key = key_of(keys, name)
        if key is None:
            findings.append(_unknown_finding(family, keys, name))
            # A misspelled key counts as the one that was meant, unless that is there, too.
            meant = nearest(name, list(keys))
            key = keys[meant] if meant and meant not in given else None
        else:
            spelled[key.name] = name
        if key is None:
            continue
        problem = key.problem(value)
        if problem is None:
            options[key.name] = value
            continue
        findings.append(_wrong_finding(family, key, value, problem.text, problem.instead))
        if problem.instead is not None:
            options[key.name] = problem.instead
    # Every rule sees the options before any rule's correction: a correction must not trigger another rule.
    corrected = dict(options)
    for rule in all_rules().rules_of(family):
        if _holds(rule, keys, options, facts):
            findings.append(Finding(rule.check, FindingMark(rule.mark), rule.text, rule.remedy))
            corrected |= {name: keys[name].value(value) for name, value in rule.put.items()}
            corrected = {name: value for name, value in corrected.items() if name not in rule.drop}
    if all(finding.mark is not FindingMark.BAD for finding in findings) and keys:
        findings.insert(0, good("runtime", f"takes {_used_options_text(keys, options)}"))
    return CheckedOptions(tuple(findings), {spelled.get(name, name): value for name, value in corrected.items()})


def shown(value: object) -> str:
    """Return a value as a script has it."""
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, Member):
        return f"{value.enum}.{value.name}"
    if isinstance(value, (list, tuple)):
        inner = ", ".join(map(shown, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
    return repr(value)


def key_of(keys: Mapping[str, Key], name: str) -> Key | None:
    """Return the key with this name, or with this as its other name."""
    return keys.get(name) or next((key for key in keys.values() if name == key.also), None)


def _unknown_finding(family: str, keys: Mapping[str, Key], name: str) -> Finding:
    effect = all_rules().families[family].unknown
    meant = nearest(name, list(keys))
    remedy = f"did you mean {meant!r}?" if meant else "leave it out: docs/reference/options.md has all"
    return bad("keys", f"there is no {name!r}: {effect}", remedy)


def _wrong_finding(family: str, key: Key, value: object, problem: str, instead: object) -> Finding:
    effect = key.wrong or all_rules().families[family].wrong
    remedy = "leave it out" if instead is None else f"take {shown(instead)}"
    return bad("values", f"{key.name} is {shown(value)}, and {problem}; {effect}", remedy)


def _holds(rule: OptionRule, keys: Mapping[str, Key], options: Mapping[str, object], facts: Collection[str]) -> bool:
    there = {*options, *facts}
    on = {*facts, *(name for name, value in options.items() if value not in OFF)}
    return (
        all(name in there for name in rule.given)
        and not any(name in there or MORE in facts for name in rule.absent)
        and (not rule.with_ or any(name in on for name in rule.with_))
        and all(_is_one(_effective(keys, options, name), wanted) for name, wanted in rule.is_.items())
        and not any(_has_all(_effective(keys, options, name), wanted) for name, wanted in rule.is_not.items())
    )


def _effective(keys: Mapping[str, Key], options: Mapping[str, object], name: str) -> object:
    """Return the value or the default of an option, with members by their names; an Expression if it is unknown."""
    value = options.get(name, keys[name].default)
    if isinstance(value, list):
        return [each.name if isinstance(each, Member) else each for each in value]
    return value.name if isinstance(value, Member) else value


def _is_one(value: object, wanted: Collection[object]) -> bool:
    return any(each in wanted for each in value) if isinstance(value, list) else value in wanted


def _has_all(value: object, wanted: Collection[object]) -> bool:
    if isinstance(value, list):
        return any(isinstance(each, Expression) for each in value) or all(each in value for each in wanted)
    return isinstance(value, Expression) or value in wanted


def _used_options_text(keys: Mapping[str, Key], options: Mapping[str, object]) -> str:
    named = [f"{name} {shown(value)}" for name, value in options.items()]
    default = [
        f"{name} {shown(key.value(key.default))}"
        for name, key in keys.items()
        if name not in options
        and key.default not in OFF
        and key.default != 0
        and not isinstance(key.default, Expression)
    ]
    texts = [", ".join(named) or "nothing by name"]
    if default:
        texts.append(f"by default {', '.join(default)}")
    return "; ".join(texts)


def problems(findings: Collection[Finding]) -> Iterator[Finding]:
    """Yield the findings that are not good."""
    return (finding for finding in findings if finding.mark is not FindingMark.GOOD)
