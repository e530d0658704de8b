"""Options in a Python script: calls of profilers, and texts of `profiling_options`. The script is read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from profagent.ascend_options.json_text import CLOSING, OPENING
from profagent.ascend_options.rules import HANDLER, MORE, Expression, Member, all_rules

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

POSITIONAL = "(positional)"
# Facts that start() is called on a Profiler that had started by itself, or by another start().
SECOND_START, START_TWICE = "(second start)", "(start twice)"
# Families of the arguments of calls, by the package and name of the called object.
MINDSPORE = {
    "Profiler": "mindspore",
    "profile": "profile",
    "_ExperimentalConfig": "experimental",
    "schedule": "schedule",
    "Profiler.offline_analyse": "offline_analyse",
}
TORCH = {"profile": "torch_profile", "_ExperimentalConfig": "torch_experimental", "schedule": "torch_schedule"}
FAMILIES = {"mindspore": MINDSPORE, "profagent_app": MINDSPORE, "torch_npu": TORCH}
# Packages with calls of the same names, which have other arguments.
OTHERS = ("torch",)
ACL_CALLS = ("acl.prof.init", "acl.prof.model_subscribe")
# Settings of a session that profiling needs, and that do not switch it on themselves; "off" is a fact of its own.
_BESIDE = ("use_off_line", "remapping")
BESIDE = frozenset(f"{name}{off}" for name in _BESIDE for off in ("", " off"))
SETTINGS = ("enable_profiling", "profiling_mode", "profiling_options", "PROFILING_MODE", "PROFILING_OPTIONS", *_BESIDE)
# `RewriterConfig.OFF` by its number.
_REWRITER_OFF = 2
_BRACES = re.compile(r"\{[^{}]*\}")
# Keys also in broken text: a quote may be missing, or come from a Chinese keyboard.
_KEY = re.compile(r"(\w+)[\"'”’]?\s*[:：]")
_CONTINUED = "\\\n"


class OptionCall(NamedTuple):
    """Call whose arguments are options of a family."""

    line: int
    family: str
    name: str
    given: dict[str, object]
    facts: frozenset[str]


class OptionText(NamedTuple):
    """Text that is, or is meant to be, the JSON of `profiling_options`, with the node that contains it, if any."""

    line: int
    text: str
    node: ast.expr | None = None


class Script(NamedTuple):
    """Profiling in a script: calls, texts and facts; `error` is empty if the script is Python."""

    calls: list[OptionCall]
    texts: list[OptionText]
    facts: frozenset[str]
    error: str = ""


def read_script(source: str) -> Script:
    """Return the calls, texts and facts of a script, or of a part of one."""
    try:
        with warnings.catch_warnings():
            # The parser warns of a script's invalid escapes, which are the script's own matter.
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        facts = frozenset(fact for node in ast.walk(tree) for fact in _facts(node))
        calls = list(_calls(tree, facts))
        return Script(calls, list(_texts(tree)), facts)
    except SyntaxError as error:
        return _script_of_braces(source, f"line {error.lineno}, column {error.offset}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return _script_of_braces(source, str(error))


def place_of(source: str, found: OptionText, at: int) -> tuple[int, int] | None:
    """Return the line and column of character `at` of a text in the script; None for a text of several parts."""
    segment = found.node and ast.get_source_segment(source, found.node)
    if not found.node or not segment or found.text not in segment.replace(_CONTINUED, ""):
        return None
    remaining = segment.replace(_CONTINUED, "").index(found.text) + at
    behind = 0
    while remaining or segment.startswith(_CONTINUED, behind):
        is_continued = segment.startswith(_CONTINUED, behind)
        behind += len(_CONTINUED) if is_continued else 1
        remaining -= 0 if is_continued else 1
    first = source.splitlines()[found.node.lineno - 1].encode()[: found.node.col_offset].decode()
    before = first + segment[:behind]
    return found.node.lineno + before.count("\n"), len(before) - before.rfind("\n")


def _script_of_braces(source: str, error: str) -> Script:
    texts = [
        OptionText(source.count("\n", 0, match.start()) + 1, match[0])
        for match in _BRACES.finditer(source)
        if _is_options(match[0])
    ]
    return Script([], texts, frozenset(), error)


def _imported(tree: ast.Module) -> dict[str, str]:
    packages = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = "." if isinstance(node, ast.ImportFrom) and node.level else getattr(node, "module", None)
            for each in node.names:
                packages[(each.asname or each.name).partition(".")[0]] = (module or each.name).partition(".")[0]
    return packages


def _families(name: str, imported: Mapping[str, str], own: Container[str]) -> Mapping[str, str]:
    """Return the families by call of the package that a name comes from.

    A name may be imported with `*`, and a script without imports is taken for MindSpore's.
    """
    root, dot, _ = name.partition(".")
    if root in imported or root in FAMILIES:
        return FAMILIES.get(imported.get(root, root), {})
    if root in OTHERS or root in own:
        return {}
    packages = [package for package in imported.values() if package in FAMILIES]
    is_by_star = not dot and (imported.get("*") in FAMILIES or "mindspore" in packages or "profagent_app" in packages)
    if is_by_star:
        return FAMILIES.get(imported.get("*", ""), MINDSPORE)
    return {} if imported else MINDSPORE


def _family(name: str, families: Mapping[str, str]) -> str:
    words = name.split(".")
    return families.get(".".join(words[-2:])) or families.get(words[-1], "")


def _calls(tree: ast.Module, facts: frozenset[str]) -> Iterator[OptionCall]:
    imported = _imported(tree)
    # Functions and classes of the script itself may have the names of profilers.
    own = {
        each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }

    def family_of(call: ast.Call) -> str:
        name = _dotted(call.func)
        return _family(name, _families(name, imported, own))

    profilers = {name: call for name, call in _named_calls(tree) if family_of(call) in {"mindspore", "profile"}}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        base, _, method = _dotted(node.func).rpartition(".")
        is_profiler = base in profilers or (bool(base) and not imported)
        is_analysis = method == "analyse" and is_profiler and bool(node.keywords)
        family = "analyse" if is_analysis else family_of(node)
        if family:
            names = [name for name, call in profilers.items() if call is node]
            twice = {fact for name in names if (fact := _second_start(tree, name, node))}
            yield _call(node, family, facts | twice)


def _call(node: ast.Call, family: str, facts: frozenset[str]) -> OptionCall:
    named = {each.arg: each.value for each in node.keywords if each.arg}
    given = {name: _literal(value) for name, value in named.items()}
    here = {POSITIONAL} if node.args else set()
    here |= set() if len(named) == len(node.keywords) else {MORE}
    handler = named.get("on_trace_ready")
    if isinstance(handler, ast.Call) and _dotted(handler.func).endswith(HANDLER) and _has_directory(handler):
        here.add(f"{HANDLER}(dir_name)")
    there = {name: value for name, value in given.items() if value is not None}
    return OptionCall(node.lineno, family, ast.unparse(node.func), there, facts | here)


def _named_calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs: list[tuple[ast.expr | None, ast.expr]] = [(target, node.value) for target in node.targets]
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            pairs = [(item.optional_vars, item.context_expr) for item in node.items]
        else:
            continue
        for target, value in pairs:
            if target is not None and isinstance(value, ast.Call) and (name := _dotted(target)):
                yield name, value


def _second_start(tree: ast.Module, name: str, made: ast.Call) -> str:
    """Return the fact that a self-starting Profiler is started, or that start() comes twice in a block; else empty."""
    switch = [each.value for each in made.keywords if each.arg in {"start_profile", None}]
    # A Profiler starts by itself unless it is made with start_profile=False, or with a value that only a run can tell.
    starts = not switch or (isinstance(switch[0], ast.Constant) and switch[0].value is True)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _act_on(node, name)]
    behind = [node for node in calls if node.lineno > made.lineno]
    if starts and behind and _act_on(min(behind, key=lambda node: node.lineno), name) == "start":
        return SECOND_START
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        found = [_act_on(each.value, name) for each in body if isinstance(each, ast.Expr)] if _is_block(body) else []
        changes = [each for each in found if each]
        if any(pair == ("start", "start") for pair in pairwise(changes)):
            return START_TWICE
    return ""


def _is_block(body: object) -> TypeGuard[list[ast.stmt]]:
    return isinstance(body, list)


def _act_on(node: ast.expr, name: str) -> str:
    base, _, method = _dotted(node.func).rpartition(".") if isinstance(node, ast.Call) else ("", "", "")
    return {"start": "start", "stop": "stop", "analyse": "stop"}.get(method, "") if base == name else ""


def _has_directory(handler: ast.Call) -> bool:
    return bool(handler.args) or any(each.arg == "dir_name" for each in handler.keywords)


def _literal(node: ast.expr) -> object:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_literal(each) for each in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return ast.literal_eval(node)
    if isinstance(node, ast.Attribute):
        enum, _, name = _dotted(node).rpartition(".")
        enum = enum.rpartition(".")[2]
        if enum[:1].isupper():
            return Member(enum, name)
    return Expression(ast.unparse(node))


def _texts(node: ast.AST, *, are_named: bool = False) -> Iterator[OptionText]:
    text = _joined_text(node)
    if text is not None and (_is_options(text) or (are_named and text.lstrip().startswith("{"))):
        assert isinstance(node, ast.expr)
        yield OptionText(node.lineno, text, node)
        return
    are_named = are_named or not {"profiling_options", "PROFILING_OPTIONS"}.isdisjoint(_facts(node))
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, are_named=are_named)


def _joined_text(node: ast.AST) -> str | None:
    if isinstance(node, ast.Constant):
        value = node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _part(node.left) + _part(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_part, node.values))
    return None


def _part(node: ast.expr) -> str:
    text = _joined_text(node)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return f"{OPENING}{ast.unparse(inner)}{CLOSING}" if text is None else text


def _is_options(text: str) -> bool:
    keys = all_rules().keys_of("profiling_options").keys()
    return text.lstrip().startswith("{") and not keys.isdisjoint(_KEY.findall(text))


def _facts(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        if name in ACL_CALLS:
            yield name
        # Without a file, acl.init switches no profiling on.
        if name == "acl.init" and node.args and not _is_off(node.args[0]):
            yield name
        for each in node.keywords:
            if each.arg in SETTINGS:
                yield from _facts_of_setting(each.arg, each.value)
        if name.endswith(("putenv", "environ.setdefault")) and len(node.args) > 1:
            yield from (
                fact for each in _named_settings(node.args[0]) for fact in _facts_of_setting(each, node.args[1])
            )
    elif isinstance(node, ast.Assign):
        yield from (
            fact
            for target in node.targets
            for each in _named_settings(target)
            for fact in _facts_of_setting(each, node.value)
        )


def _facts_of_setting(name: str, value: ast.expr) -> Iterator[str]:
    is_off = _is_off(value)
    if name == "remapping":
        by_number = isinstance(value, ast.Constant) and value.value == _REWRITER_OFF
        is_off = by_number or _dotted(value).endswith(".OFF")
    if not is_off:
        yield name
    elif name in _BESIDE:
        yield f"{name} off"


def _named_settings(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if name in SETTINGS and isinstance(node, (ast.Attribute, ast.Constant)):
            yield str(name)


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (not node.value or str(node.value).casefold() == "false")


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
