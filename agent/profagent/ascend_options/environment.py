"""Environment variables that switch profiling on, in a shell script or a file of variables. Pure."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from profagent.ascend_options.rules import Expression
from profagent.limits import MOST_QUOTED_LINES

MODE, OPTIONS = "PROFILING_MODE", "PROFILING_OPTIONS"
_ASSIGNED = re.compile(rf"[ \t]*(export[ \t]+|ENV[ \t]+)?({MODE}|{OPTIONS})=(.*)")
_PYTHON = re.compile(r"^\s*(?:import|from|def|class)\s", re.MULTILINE)
_SHELL = re.compile(r"^#!|^[ \t]*export[ \t]", re.MULTILINE)


class Environment(NamedTuple):
    """Values of the two variables, their texts in the file, and True if a shell reads them."""

    values: dict[str, object]
    texts: dict[str, str]
    is_shell: bool

    def lost_quotes(self) -> bool:
        """Return True if the shell removes the quotes of the options' JSON."""
        value = self.values.get(OPTIONS)
        return isinstance(value, str) and '"' in self.texts[OPTIONS] and value.startswith("{") and '"' not in value

    def meant_options(self) -> str | None:
        """Return the JSON that was meant, even if the shell makes another text of it; None without any."""
        value = self.values.get(OPTIONS)
        if isinstance(value, Expression) or not isinstance(value, str):
            return None
        return _unquoted(self.texts[OPTIONS]) if self.lost_quotes() else value


def read_environment(text: str) -> Environment | None:
    """Return the variables that a text sets, the last value of each; None for Python, or if it sets none."""
    # Python that sets variables is checked as a script, whose other settings count as well.
    if _PYTHON.search(text):
        return None
    is_shell = _SHELL.search(text) is not None
    lines = text.splitlines()
    texts = {}
    for place, line in enumerate(lines):
        if found := _ASSIGNED.match(line):
            texts[found[2]] = (
                _with_closing_lines(found[3], lines[place + 1 : place + MOST_QUOTED_LINES]) if is_shell else found[3]
            )
    values = {name: _of_shell(each) if is_shell else _unquoted(each.strip()) for name, each in texts.items()}
    return Environment(values, {name: each.strip() for name, each in texts.items()}, is_shell) if texts else None


def environment_text(values: dict[str, object], *, is_shell: bool) -> str:
    """Return the lines that set the variables."""
    if is_shell:
        return "\n".join(f"export {name}={shlex.quote(str(value))}" for name, value in values.items())
    return "\n".join(f"{name}={value}" for name, value in values.items())


def _with_closing_lines(first: str, behind: list[str]) -> str:
    text = first
    for line in behind:
        try:
            shlex.split(text, comments=True)
        except ValueError:
            text = f"{text}\n{line}"
        else:
            return text
    return text


def _of_shell(text: str) -> object:
    """Return the value that a shell makes of a text; an Expression if the shell computes it."""
    # Single quotes keep the shell from computing what is in them.
    if re.search(r"[$`]", re.sub(r"'[^']*'", "", text)):
        return Expression(text.strip())
    try:
        words = shlex.split(text.rstrip("; \t"), comments=True)
    except ValueError:
        return text.strip()
    return words[0] if words else ""


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
