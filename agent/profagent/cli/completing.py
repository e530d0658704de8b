"""Completions of the words of a command line, from the user's own files; none if these cannot be read."""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

from click.shell_completion import BashComplete, CompletionItem, FishComplete, ZshComplete, add_completion_class

from profagent.errors import ProfagentError
from profagent.limits import COMPLETION_S, MOST_WORDS
from profagent.link.boards_file import BoardNames, BoardsFile
from profagent.store.workspace import BASELINE, LAST, Workspace, session_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import click


# Word and its description.
Word = tuple[str, str]


def words_of(kind: str, context: click.Context, incomplete: str) -> list[CompletionItem[str]]:
    """Return the completions of a kind that begin with `incomplete`; also a path where one is allowed."""
    path = [CompletionItem(incomplete, PATHS[kind])] if kind in PATHS else []
    try:
        words = list(KINDS[kind](context))
    except (OSError, sqlite3.Error, ProfagentError):
        return path
    return path + [CompletionItem(word, help=about or None) for word, about in words if word.startswith(incomplete)]


def _boards(_context: click.Context) -> Iterator[Word]:
    for entry in BoardsFile().entries().values():
        yield entry.name, entry.address


def _groups(_context: click.Context) -> Iterator[Word]:
    boards: dict[str, list[str]] = {}
    for entry in BoardsFile().entries().values():
        for group in entry.groups:
            boards.setdefault(group, []).append(entry.name)
    yield from ((group, ", ".join(names)) for group, names in boards.items())


def _sessions(context: click.Context) -> Iterator[Word]:
    names = BoardNames.known()
    rows = _rows(
        context,
        "SELECT session, identity, hostname, datetime(started_us / 1000000, 'unixepoch') || ' ' || source"
        " FROM session JOIN board USING (board) ORDER BY session DESC",
    )
    for session, identity, hostname, about in rows:
        yield str(session), f"{names.of(identity, hostname)} {about}"
    yield LAST, "the newest session"
    yield from _of_workspace(
        context,
        "SELECT key || '=' || value, 'session ' || max(session) FROM session_label GROUP BY key, value ORDER BY 1",
    )


def _baselines(context: click.Context) -> Iterator[Word]:
    yield from _of_workspace(
        context, "SELECT value, 'session ' || session FROM session_label WHERE key = ? ORDER BY value", BASELINE
    )


def _jobs(context: click.Context) -> Iterator[Word]:
    # If an option still lacks its value, click leaves the earlier words unparsed in `args`.
    word = context.params.get("target") or next(iter(context.args), "")
    query = session_query(word)
    named, values = query if query is not None else ("session", ())
    yield from _of_workspace(
        context,
        f"SELECT DISTINCT name, '' FROM job JOIN session_job USING (job) WHERE session = ({named}) ORDER BY name",  # noqa: S608 - queries of ours
        *values,
    )


def _models(context: click.Context) -> Iterator[Word]:
    yield from _of_workspace(context, "SELECT DISTINCT name, '' FROM model ORDER BY name")


def _layers(context: click.Context) -> Iterator[Word]:
    yield from _of_workspace(
        context,
        "SELECT DISTINCT l.name, type FROM layer l JOIN model m USING (model) WHERE ?1 IS NULL OR m.name = ?1"
        " ORDER BY layer_index",
        context.params.get("model"),
    )


def _conditions(context: click.Context) -> Iterator[Word]:
    yield from _of_workspace(
        context,
        "SELECT DISTINCT 'label=' || key || '=' || value, '' FROM session_label"
        " UNION SELECT 'board=' || hostname, '' FROM board WHERE hostname <> '' UNION SELECT 'source=' || source, ''"
        " FROM session",
    )


def _of_workspace(context: click.Context, query: str, *values: object) -> Iterator[Word]:
    yield from ((str(word), about) for word, about in _rows(context, query, *values))


def _rows(context: click.Context, query: str, *values: object) -> Iterator[tuple[Any, ...]]:
    database = Workspace.at(context.params.get("workspace")).database.absolute()
    # A short timeout: somebody waits at the prompt, and no completion is better than a late one.
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True, timeout=COMPLETION_S)) as connection:
        yield from connection.execute(f"{query} LIMIT {MOST_WORDS}", values)


KINDS: dict[str, Callable[[click.Context], Iterator[Word]]] = {
    "boards": _boards,
    "groups": _groups,
    "sessions": _sessions,
    "targets": _sessions,
    "operands": _sessions,
    "baselines": _baselines,
    "jobs": _jobs,
    "models": _models,
    "layers": _layers,
    "conditions": _conditions,
}
# Kinds for which a path is allowed as well: a directory, or any file.
PATHS = {"targets": "dir", "operands": "file"}


class Bash(BashComplete):
    """Completion for bash, extended to words with characters at which bash splits, or which a shell interprets."""

    # Without the redirection, Ctrl-C during a completion would print a traceback into the prompt.
    source_template = BashComplete.source_template.replace("bash_complete $1)", "bash_complete $1 2>/dev/null)")

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and the word to complete, rejoined where bash split them."""
        before, last = super().get_completion_args()
        words: list[str] = []
        for word in (*before, last):
            is_joined = bool(words) and (word.startswith(_PARTING) or words[-1].endswith(_PARTING))
            words[-1:] = [words[-1] + word] if is_joined else [*words[-1:], word]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return a completion for bash, which expects only the part after a typed colon or equals sign."""
        if item.type != "plain":
            return super().format_completion(item)
        _, typed = self.get_completion_args()
        if typed.startswith("--"):
            typed = typed.partition("=")[2]
        value = item.value[max(map(typed.rfind, _PARTING)) + 1 :]
        return f"{item.type},{shlex.quote(value) if set(value) & _SPECIAL else value}"


# Characters at which bash splits words.
_PARTING = (":", "=")
_SPECIAL = set(" \t\"'\\$`&|;<>()*?[]!#{}~")


class Zsh(ZshComplete):
    """Completion for zsh, changed so that the file, which zsh loads as a function, completes at each call of it."""

    source_template = ZshComplete.source_template.replace(
        "$zsh_eval_context[-1] == loadautofunc", "$funcstack[1] == _%(prog_name)s"
    )

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Return a completion in three lines; a placeholder replaces an empty line, which the script would lose."""
        return super().format_completion(item) if item.value else f"{item.type}\n_\n_"


class Fish(FishComplete):
    """Completion for fish, extended to words and descriptions with commas."""

    source_template = FishComplete.source_template.replace('split ","', 'split --max 1 ","')


def register() -> None:
    """Register these completions with click."""
    add_completion_class(Bash)
    add_completion_class(Fish)
    add_completion_class(Zsh)
