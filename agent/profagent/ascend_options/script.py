"""Options in a Python script: calls of MindSpore's profiler and texts of `profiling_options`. It is read, never run."""

from __future__ import annotations

import ast
import re
import warnings
from typing import TYPE_CHECKING, NamedTuple

from profagent.ascend_options.json_text import CLOSING, OPENING, members
from profagent.ascend_options.rules import HANDLER, MORE, Expression, Member, all_rules

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

POSITIONAL = "(positional)"
FAMILIES = {
    "Profiler": "mindspore",
    "profile": "profile",
    "_ExperimentalConfig": "experimental",
    "schedule": "schedule",
}
# Packages whose Profiler has these arguments, and some that call theirs so, too.
PACKAGES = ("mindspore", "profagent_app")
OTHERS = ("torch", "torch_npu")
ACL_CALLS = ("acl.prof.init", "acl.prof.model_subscribe")
SETTINGS = ("enable_profiling", "profiling_mode", "profiling_options", "PROFILING_MODE")
_BRACES = re.compile(r"\{[^{}]*\}")
_CONTINUED = "\\\n"


class OptionCall(NamedTuple):
    """A call whose arguments are options of a family."""

    line: int
    family: str
    name: str
    given: dict[str, object]
    facts: frozenset[str]
    source: str


class OptionText(NamedTuple):
    """A text that is, or is meant to be, the JSON of `profiling_options`; the node it stands in, if there is one."""

    line: int
    text: str
    node: ast.expr | None = None


class Script(NamedTuple):
    """What a script says of profiling; `error` where it is no Python."""

    calls: list[OptionCall]
    texts: list[OptionText]
    facts: frozenset[str]
    error: str = ""


def read_script(source: str) -> Script:
    """Look at a script, or at a part of one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
        facts = frozenset(fact for node in ast.walk(tree) for fact in _facts(node))
        calls = list(_calls(tree, facts))
        return Script(calls, list(_texts(tree)), facts)
    except SyntaxError as error:
        return _no_python(source, f"line {error.lineno}, column {error.offset}: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return _no_python(source, str(error))


def place_of(source: str, found: OptionText, at: int) -> tuple[int, int] | None:
    """The line and column of the script where character `at` of the text stands; None where it is put together."""
    segment = found.node and ast.get_source_segment(source, found.node)
    if not found.node or not segment or found.text not in segment.replace(_CONTINUED, ""):
        return None
    left = segment.replace(_CONTINUED, "").index(found.text) + at
    behind = 0
    while left or segment.startswith(_CONTINUED, behind):
        is_continued = segment.startswith(_CONTINUED, behind)
        behind += len(_CONTINUED) if is_continued else 1
        left -= 0 if is_continued else 1
    first = source.splitlines()[found.node.lineno - 1].encode()[: found.node.col_offset].decode()
    before = first + segment[:behind]
    return found.node.lineno + before.count("\n"), len(before) - before.rfind("\n")


def _no_python(source: str, error: str) -> Script:
    """What is left of a script that is none: the texts in braces."""
    texts = [
        OptionText(source.count("\n", 0, match.start()) + 1, match[0])
        for match in _BRACES.finditer(source)
        if _is_options(match[0])
    ]
    return Script([], texts, frozenset(), error)


def _imported(tree: ast.Module) -> dict[str, str]:
    """The packages that names of a script are of."""
    packages = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = "." if isinstance(node, ast.ImportFrom) and node.level else getattr(node, "module", None)
            for each in node.names:
                packages[(each.asname or each.name).partition(".")[0]] = (module or each.name).partition(".")[0]
    return packages


def _may_be_mindspore(name: str, imported: Mapping[str, str], own: Container[str]) -> bool:
    """Whether what is called so may be MindSpore's: imported from there, by `*` too, or in a script without imports."""
    root, dot, _ = name.partition(".")
    if root in imported:
        return imported[root] in PACKAGES
    is_by_star = not dot and any(package in PACKAGES for package in imported.values())
    return root not in OTHERS and root not in own and (is_by_star or not imported)


def _calls(tree: ast.Module, facts: frozenset[str]) -> Iterator[OptionCall]:
    imported = _imported(tree)
    own = {
        each.name for each in ast.walk(tree) if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    for node in ast.walk(tree):
        name = _dotted(node.func) if isinstance(node, ast.Call) else ""
        family = FAMILIES.get(name.rpartition(".")[2])
        if family and isinstance(node, ast.Call) and _may_be_mindspore(name, imported, own):
            named = {each.arg: each.value for each in node.keywords if each.arg}
            given = {name: _value(value) for name, value in named.items()}
            here = {POSITIONAL} if node.args else set()
            here |= set() if len(named) == len(node.keywords) else {MORE}
            handler = named.get("on_trace_ready")
            if isinstance(handler, ast.Call) and _dotted(handler.func).endswith(HANDLER) and _has_directory(handler):
                here.add(f"{HANDLER}(dir_name)")
            there = {name: value for name, value in given.items() if value is not None}
            yield OptionCall(node.lineno, family, ast.unparse(node.func), there, facts | here, ast.unparse(node))


def _has_directory(handler: ast.Call) -> bool:
    return bool(handler.args) or any(each.arg == "dir_name" for each in handler.keywords)


def _value(node: ast.expr) -> object:
    """A constant, a member of an enumeration, or a list of these; whatever else is an Expression."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(each) for each in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_value(each) for each in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return ast.literal_eval(node)
    if isinstance(node, ast.Attribute):
        enum, _, name = _dotted(node).rpartition(".")
        enum = enum.rpartition(".")[2]
        if enum[:1].isupper():
            return Member(enum, name)
    return Expression(ast.unparse(node))


def _texts(node: ast.AST, *, are_named: bool = False) -> Iterator[OptionText]:
    """The outermost texts that look like options, or are called so."""
    text = _folded(node)
    if text is not None and (_is_options(text) or (are_named and text.lstrip().startswith("{"))):
        assert isinstance(node, ast.expr)
        yield OptionText(node.lineno, text, node)
        return
    are_named = are_named or "profiling_options" in _facts(node)
    for child in ast.iter_child_nodes(node):
        yield from _texts(child, are_named=are_named)


def _folded(node: ast.AST) -> str | None:
    """A text, also one that is put together; what it is put together of stands in brackets."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _part(node.left) + _part(node.right)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_part, node.values))
    return None


def _part(node: ast.expr) -> str:
    text = _folded(node)
    inner = node.value if isinstance(node, ast.FormattedValue) else node
    return f"{OPENING}{ast.unparse(inner)}{CLOSING}" if text is None else text


def _is_options(text: str) -> bool:
    return text.lstrip().startswith("{") and not all_rules().keys_of("profiling_options").keys().isdisjoint(
        members(text)
    )


def _facts(node: ast.AST) -> Iterator[str]:
    """Names of calls and settings that rules ask for."""
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        if name in ACL_CALLS:
            yield name
        if name == "acl.init" and node.args and not _is_off(node.args[0]):
            yield name
        for each in node.keywords:
            if each.arg in SETTINGS and not _is_off(each.value):
                yield each.arg
        if name.endswith(("putenv", "environ.setdefault")) and len(node.args) > 1 and not _is_off(node.args[1]):
            yield from _settings(node.args[0])
    elif isinstance(node, ast.Assign) and not _is_off(node.value):
        for target in node.targets:
            yield from _settings(target)


def _settings(target: ast.expr) -> Iterator[str]:
    """The settings that a target names: `config.enable_profiling`, `parameter_map["profiling_mode"].b`."""
    for node in ast.walk(target):
        name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "value", None)
        if name in SETTINGS and isinstance(node, (ast.Attribute, ast.Constant)):
            yield str(name)


def _is_off(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and (not node.value or str(node.value).casefold() == "false")


def _dotted(node: ast.expr) -> str:
    """`a.b.c`; what is no name is empty."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
