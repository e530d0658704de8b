"""Generate docs/reference from the code (`make docs`), or check that it is up to date."""

from __future__ import annotations

import argparse
import inspect
import re
import sqlite3
import sys
from collections import Counter
from contextlib import closing, suppress
from importlib import resources
from inspect import getdoc
from pathlib import Path
from tempfile import TemporaryDirectory
from textwrap import dedent
from types import FunctionType
from typing import TYPE_CHECKING, NamedTuple

import click

import profagent
from profagent import limits
from profagent.advise.advise import MEANS
from profagent.advise.rules import SEVERITIES, own_rules
from profagent.api.names import NAMES, TIERS
from profagent.ascend.families import families as ascend_families
from profagent.ascend_options.rules import all_rules
from profagent.cli.main import EXIT_CODES, GROUPS, group
from profagent.export.formats import FORMATS
from profagent.fleet.cli import QUESTIONS
from profagent.ingest.source import schemas
from profagent.ledger import INCOMPLETE, REASONS
from profagent.store import counters, marks, thinning
from profagent.store.database import SCHEMA_VERSION
from profagent.store.workspace import SESSION_FORMS
from profagent.tables.comparability import LEAST_ALIKE
from profagent.tables.comparability import RULES as COMPARISON_RULES
from profagentd import limits as daemon_limits
from profagentd import main as daemon
from profagentd.config import DaemonConfig
from profagentd.metrics.collectors import NPU_COLUMNS, UNITS, all_collectors
from profagentd.simulate.board import SimulatedBoard
from tools.code_pages import codes_page, doctor_page
from tools.program_pages import documents_page

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from profagent.ascend_options.rules import Key

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTICE = "<!-- `make docs` makes this page from {}. -->"
# A heading, or a bound: its name, value and the text below it.
_BOUND = re.compile(r'^(?:# (.+)|(\w+) = ([^\n]+)(?:\n"""([^"]+)""")?)$', re.MULTILINE)
KINDS = {"summary": "Summaries (CSV)", "timeline": "Timelines", "report": "Reports", "table": "Tables of databases"}
FLEET = "--engine --since --until --board --label --lake --model --layer --at --markdown --allow --slo -o"
# Commands that a page explains, and their options whose meaning stands there or in their name.
EXPLAINED = {
    "watch": ("../howto/watch-the-screen.md", "--speed --plain --against --slo"),
    "record": (
        "../howto/record.md",
        (
            "--for --inferences --backlog --from-now --new --schedule --every --keep-when --consumer --metrics-listen"
            " --slo"
        ),
    ),
    "incidents": ("../howto/flight-recorder.md", ""),
    "collect": ("../howto/run-a-program.md", "-m --acl-json --output --release --env --remote-dir"),
    "deploy": (
        "../howto/install-on-a-board.md",
        "--name --listen --retain --retain-for --min-free --init --prefix --dry-run --upgrade --rollback --remove",
    ),
    "import": ("../howto/record.md", ""),
    "bundle": ("../howto/board-without-python.md", "-o --from --libraries"),
    "diff": ("../howto/compare-runs.md", "--fail-if --floor --markdown --slo"),
    "ab": ("../howto/ab.md", "-m --against --against-args --rounds --floor"),
    **dict.fromkeys(("nightly init", "nightly run"), ("../howto/every-night.md", "--timer --markdown")),
    "advise": ("../howto/advice.md", "-o"),
    "stats": ("figures.md", "--by --sort --top --csv --slo"),
    "trend": ("../howto/compare-runs.md", "--model --layer"),
    "report": ("../howto/report.md", "--against --allow -o"),
    "doctor": ("doctor.md", "--board"),
    **dict.fromkeys(("calibrate", "redecode"), ("counter-maps.md", "--vendor-summary -o --sdk")),
    **dict.fromkeys(
        (
            *("push", "fleet diff", "fleet report", "fleet sql", "fleet demo", "fleet compact", "fleet expire"),
            *(f"fleet {name}" for name in QUESTIONS),
        ),
        ("../howto/fleet.md", FLEET),
    ),
    "options check": ("../howto/check-options.md", ""),
    "explain": ("codes.md", ""),
    "mcp": ("../howto/mcp.md", "--allow-record --reports"),
    "kit": ("../howto/send-evidence.md", "-o --vendor-summary --anonymous --sdk"),
    **{f"export {name}": ("exports.md", "--output --aggregate --format") for name in FORMATS},
    "export trace": ("../howto/one-trace.md", "--output --part-size"),
}
# What the views answer, for the table at the top of their page.
VIEW_QUESTIONS = {
    "What was captured, is it complete, and which labels has it?": ("sessions", "fetched_jobs"),
    "Which layer takes how long, on which processor?": ("op_records", "aicpu_records"),
    "When did an inference run, and is everything of it here?": ("inferences",),
    "Which calls of the runtime did the program make?": ("api_records",),
    "What is missing or odd, and when was the board followed?": ("ledger", "kept_losses", "coverage"),
    "How many inferences did the runtime record of those that were due?": ("sampling_by_model", "sample_gaps"),
    "What did the program mark and subscribe to, and what did a person mark?": ("ranges", "op_events", "session_marks"),
    "When did the marked steps of each frame run?": ("frame_marks",),
    "Which incidents did a flight recorder find?": ("incidents",),
    "How warm and how busy was the board?": ("metrics",),
    "What was in files of other Ascend tools?": ("ascend_files", "ascend_values"),
}
# Options of most commands, which are listed once.
COMMON = ("--counter-map", "--json", "--quiet", "--wide", "--workspace")
# Options that stand together, and what they are called.
SETS = {
    "board": ("--keys", "--insecure", "--via", "--root", "--bundle"),
    "JOB": ("-dir", "--job", "--last", "--inference"),
    "profiler": ("--interval", "--acl_api", "--aacpu", "--switch", "--aac_metrics"),
    "period": ("--last", "--from", "--to"),
}


def main() -> None:
    """Write the pages, or with --check fail when what is there differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail when a page is out of date")
    is_check = parser.parse_args().check
    pages = {FOLDER / name: page() for name, page in PAGES.items()}
    stale = {file: text for file, text in pages.items() if not file.exists() or file.read_text("utf-8") != text}
    if is_check and stale:
        sys.exit(f"out of date, run `make docs`: {', '.join(file.name for file in stale)}")
    for file, text in stale.items():
        file.write_text(text, "utf-8")


def commands_page() -> str:
    """Every verb from click's commands."""
    _require_explained_formats()
    commands = dict(leaves("", group))
    shared = _shared_options(commands.values())
    lines = [
        NOTICE.format("the commands"),
        "# Commands",
        "",
        "Results go to standard output, remarks to standard error. `--help` has examples, and explains every option.",
        "The manual pages, `man profagent` and `man profagentd`, are installed with the package. The page behind",
        f"*More* explains the options that this page only names. To see whether a command has {_codes(COMMON)},",
        "ask its `--help`.",
        "",
        "Exit codes:",
        "",
        *(f"- {code}: {meaning}" for code, meaning in EXIT_CODES.items()),
        "",
        "A session is incomplete if its ledger has a loss, if it has not ended, or if expected data did not arrive",
        f"(the notes {_codes(sorted(INCOMPLETE))}). `record`, `collect`, `import`,",
        "`nightly` and each `export` write results that others rely on. They exit with 4 if a session that they read",
        "is incomplete. An `export` also exits with 4 if none of the chosen data exists. Commands that only show data",
        "(`show`, `stats`, `report`, `advise`, `trend`, `watch SESSION`, `ledger`) print `INCOMPLETE` with the reason",
        "on standard error, and exit with 0. `diff` and `nightly` exit with 1 if a run is slower or a condition holds;",
        "`diff` exits with 4 if no condition holds, and data is missing, a condition cannot be decided, or the runs",
        "may [not be compared](comparability.md).",
        "",
        "## Naming a session",
        "",
        f"A session is written {SESSION_FORMS}: `profagent show last`, `profagent diff -2 last`,",
        "`profagent stats build=1234`, `profagent report 3 --against baseline=release -o report.html`. A baseline is a",
        "label. Shells complete numbers, `last` and labels. A directory of that name is taken first.",
        "",
        "## Options of several commands",
        "",
        *(f"- *{title}*: {_codes(names)}" for title, names in SETS.items()),
        *_list(sorted(shared.items(), key=lambda option: option[0].lstrip("-"))),
    ]
    for title, verbs in GROUPS.items():
        lines += ["", f"## {title}"]
        for name in (each for each in commands if each.split()[0] in verbs):
            lines += ["", f"### {name}", "", *_command_lines(name, commands[name], verbs[name.split()[0]][1], shared)]
    return "\n".join(lines) + "\n"


def _require_explained_formats() -> None:
    """End with a message for a format that the page about exports, which people write, does not mention."""
    text = (FOLDER / "exports.md").read_text("utf-8")
    for call in (f"profagent export {name}" for name in FORMATS):
        if not re.search(rf"{call}\b", text):
            sys.exit(f"docs/reference/exports.md has no line with `{call}`: say there what it writes")


def _format_line(name: str) -> str:
    """Return where a format's result goes and what reads it."""
    kind, _, word = name.rpartition(" ")
    return f" To `{FORMATS[word].place}`, for {FORMATS[word].opens_in}." if kind == "export" else ""


def ledger_page() -> str:
    """Every reason from the registry."""
    lines = [NOTICE.format("agent/profagent/ledger.py"), "# Reasons of the ledger", ""]
    lines += [
        "The ledger of a session has an entry for everything that is not as it should be, each with one of these",
        "reasons. A *loss* is about bytes or records that existed and are gone, so that the session is incomplete. A",
        "*note* is something that the vendor's runtime does by itself, or a remark. The session stays complete, except",
        f"with the notes {_codes(sorted(INCOMPLETE))}. A reason that only a newer daemon",
        "knows counts as a loss. Which commands exit with 4 for an incomplete session stands in",
        "[commands](commands.md). Behind an arrow stands what to do.",
        "",
        "`profagent ledger SESSION` lists the entries of a session, with their files and places. For a full disk,",
        "read how to [free the board's disk](../howto/free-the-boards-disk.md).",
    ]
    for title, grade in (("Losses", "loss"), ("Notes", "note")):
        lines += ["", f"## {title}", ""]
        for reason in (each for each in REASONS.values() if each.severity == grade):
            remedy = "" if reason.remedy.startswith("Nothing") else f" → {reason.remedy}"
            lines.append(f"- `{reason.code}`: {reason.meaning}{remedy}")
    return "\n".join(lines) + "\n"


def comparability_page() -> str:
    """Rules of comparability from their table."""
    lines = [NOTICE.format("agent/profagent/tables/comparability.py"), "# Which runs may be compared", ""]
    lines += [
        "`diff`, `trend`, `nightly` and `fleet diff` ask one policy before they form a difference. Each rule names a",
        "fact in which two runs must be alike. Where they differ, the figures that the rule blocks are not compared:",
        "they appear neither in the text nor in JSON, Markdown or JUnit, a `--fail-if` about them is not judged, and",
        "the exit code is 4. The first line of a report says what may be compared: `comparable`, `comparable in part`",
        "or `not comparable`, with the codes of the rules.",
        "",
        "`--allow CODE` overrides one rule, and may be repeated (`allow = ['CODE']` in `nightly.toml`). The document",
        "names each overridden rule as `allowed`. A fact that one of the runs does not know blocks nothing; `unknown`",
        "then says so.",
        "",
        "| code | grade | blocks | reason |",
        "|---|---|---|---|",
    ]
    for rule in COMPARISON_RULES.values():
        blocks = ", ".join(rule.blocks) or "nothing"
        lines.append(f"| `{rule.code}` | {rule.issue.severity} | {blocks} | {rule.reason} |")
    lines += [
        "",
        f"Layers are alike by name, or by type: of `model`, fewer than {LEAST_ALIKE:.0%} are, of `layers` more.",
        "`trend` compares with the newest session of each board, `fleet diff` with the newest night of each board.",
    ]
    return "\n".join(lines) + "\n"


def database_page() -> str:
    """Views and tables from the schema and its comments."""
    own_schema = resources.files("profagent.store").joinpath("schema.sql").read_text("utf-8")
    further = (*schemas(), counters.SCHEMA, marks.SCHEMA, thinning.SCHEMA)
    schema = "\n".join([own_schema, *(f"{dedent(each)};" for each in further)])
    columns = _columns(schema)
    views = _commented("VIEW", schema)
    answers = VIEW_QUESTIONS
    named = [view for of in answers.values() for view in of]
    if len({*named}) < len(named) or not {*named} <= views.keys():
        sys.exit("VIEW_QUESTIONS must name each view once, and none that does not exist")
    if others := [view for view in views if view not in named]:
        answers = answers | {"What else do sources bring?": tuple(others)}
    common = _meanings(re.findall(r"^-- Columns of several views:\n((?:--   .*\n)+)", schema, re.MULTILINE)[0])
    lines = [
        NOTICE.format("agent/profagent/store/schema.sql and each Source.schema"),
        "# Views and tables",
        "",
        "The database of a workspace has these views. They are the public interface, while tables may change",
        "(`sqlite3 profagent.db .schema` explains them). How to ask them, and what to mind, is on [another",
        "page](../howto/query-the-database.md). Below the name of a view is what its rows are, then its columns.",
        "",
        "- `NULL` means 'not known', never zero.",
        "- Times in `_us` are microseconds of the board's wall clock, unless the column says otherwise.",
        f"- `PRAGMA user_version` is the version of the schema: {SCHEMA_VERSION}.",
        "",
        "| question | views |",
        "|---|---|",
        *(f"| {question} | {', '.join(f'[`{view}`](#{view})' for view in of)} |" for question, of in answers.items()),
        "",
        "## Columns of several views",
        *_column_lines(common),
    ]
    if views.keys() != columns.keys():
        sys.exit(f"a view has no comment above it: {', '.join(columns.keys() - views.keys())}")
    for name, (text, own) in views.items():
        missing = [column for column in columns[name] if column not in {*own, *common}]
        if missing or own.keys() - set(columns[name]):
            sys.exit(f"comments of the view {name} and its columns differ: {missing or own.keys()}")
        also = [column for column in columns[name] if column not in own]
        left_out = [column for column in common if column not in columns[name]]
        all_but = "all columns of several views" + (f" but {_codes(left_out)}" if left_out else "")
        also_common = all_but if len(left_out) < len(also) else _codes(also)
        lines += ["", f"## `{name}`", "", text, *_column_lines(own, also_common)]
    return "\n".join(lines) + "\n"


def limits_page() -> str:
    """Every bound from the modules that have them."""
    waiting = _size(limits.QUEUED_MESSAGES * limits.LARGEST_CHUNK_BYTES)
    batch, cache = _size(limits.LARGEST_BATCH_BYTES), _size(limits.CACHE_KIB << 10)
    lines = [
        NOTICE.format("agent/profagent/limits.py and daemon/profagentd/limits.py"),
        "# Limits",
        "",
        "Every queue, cache and wait of profagent has a bound. Each line has the number, what it counts, and behind",
        "the colon what happens beyond it. None is a setting. The name at the end is that of the constant in the code.",
        "",
        f"Memory of a capture: up to {waiting} of messages from each board wait for the disk, a batch has up to",
        f"{batch} of logs, and each connection that writes to the database keeps up to {cache} of pages. The",
        "[memory budget](../internals/memory-budget.md) adds the bounds up for each process, and",
        "[performance](../internals/performance.md) has what was measured.",
    ]
    for title, module in (("host", limits), ("daemon", daemon_limits)):
        lines += ["", f"## Of the {title}"]
        for heading, bounds in read_bounds(Path(module.__file__ or "").read_text("utf-8")).items():
            lines += ["", f"### {heading}", ""]
            lines += [f"- {_amount(getattr(module, each.name), each)}: {each.effect}. `{each.name}`" for each in bounds]
    return "\n".join(lines) + "\n"


class Bound(NamedTuple):
    """A bound as its module has it: the expression of its value, its unit, and what becomes of more."""

    name: str
    value: str
    unit: str
    effect: str


def read_bounds(source: str) -> dict[str, list[Bound]]:
    """Return the bounds of a module by their headings; end with a message for one without its text."""
    found: dict[str, list[Bound]] = {}
    for heading, name, value, text in _BOUND.findall(source):
        unit, colon, effect = " ".join(text.split()).removesuffix(".").partition(": ")
        if heading:
            found[heading] = []
        elif not colon or not found:
            sys.exit(f"{name} has no heading above it, or no text 'UNIT: what becomes of more' below it")
        else:
            found[next(reversed(found))].append(Bound(name, value, unit, effect))
    return found


def _amount(value: float, bound: Bound) -> str:
    if bound.unit.split()[0] == "bytes" and value % 1024 == 0 and "**" not in bound.value:
        return f"{_size(int(value))}{bound.unit.removeprefix('bytes')}"
    if bound.unit.startswith("of "):
        return f"{value:.0%} {bound.unit}".replace("%", " %")
    # A rate of less than one has no more digits than one can read.
    number = bound.value if "**" in bound.value else f"{value:,.12g}" if value >= 1 else f"{value:.2g}"
    return f"{number} {bound.unit}"


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count % (1 << 20) == 0 else f"{count / 1024:g} KiB"


def settings_page() -> str:
    """The daemon's arguments and keys from its parser and its configuration."""
    lines = [
        NOTICE.format("the daemon's arguments"),
        "# Settings of the daemon",
        "",
        "The daemon takes its settings as arguments, or from a TOML file that `--config FILE` names; an argument wins",
        "over the file. A board that `profagent deploy` set up has the file `/etc/profagent/profagentd.toml`. The key",
        "of a setting is its argument with `_` for `-`, unless the line below names another; a list in the file is",
        "the same as a repeated argument. This file changes two settings:",
        "",
        "```toml",
        'roots = ["/opt/app/profiling", "/opt/other/profiling"]',
        "metrics_hz = 5",
        "```",
        "",
        "`profagentd --config FILE --check-config` says whether a file is right, and starts nothing. Defaults are in",
        "round brackets. Arguments with * have no key.",
        "",
    ]
    known = {"help", "version", "config", "check_config"}  # told above, or of every program
    arguments, simulated = (group for group in daemon.make_parser()._action_groups if group._group_actions)  # noqa: SLF001 - argparse shows them no other way
    for action in arguments._group_actions:  # noqa: SLF001 - as above
        if action.dest not in known:
            usual = action.option_strings[-1].removeprefix("--").replace("-", "_")
            key = "" if action.dest == usual else f", key `{action.dest}`"
            lines.append(_argument(action, key if action.dest in DaemonConfig.__dataclass_fields__ else "*"))
    lines += [
        "",
        "## The simulated board",
        "",
        "These arguments go with `--simulate`, and have no keys. [The simulated board](simulated-board.md) has a page",
        "of its own.",
        "",
    ]
    lines += [_argument(action) for action in simulated._group_actions]  # noqa: SLF001 - as above
    return "\n".join(lines) + "\n"


def _argument(action: argparse.Action, mark: str = "") -> str:
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    name = f"{action.option_strings[-1]} {action.metavar or choices}".strip()
    return f"- `{name}`{mark}: {(action.help or '') % vars(action)}"


def rules_page() -> str:
    """The rules of `advise` from their files, and what they read beside the views."""
    lines = [NOTICE.format("agent/profagent/advise/rules/*.toml"), "# Rules of advise", ""]
    lines += [
        "`profagent advise` applies these rules to a session. [How to read its advice, and how to write a",
        "rule](../howto/advice.md) is on another page. Each line has the rule's id and the title of its finding, in",
        "which words in italics are filled in. In brackets are the rule's thresholds, and behind the semicolon the",
        "data that it needs: times, counters, calls, metrics, steps (of another tool's results), an SS928, or another",
        "device. Without that data the rule is `N/A`, and `advise` says why.",
    ]
    for severity in SEVERITIES:
        lines += ["", f"## {severity.capitalize()}", ""]
        for rule in (each for each in own_rules() if each.severity == severity):
            title = re.sub(r"\{(\w+)[^}]*\}", r"*\1*", rule.en.title.removesuffix(": {rows} layer{s}"))
            limits = [f"{name} {value:g}" for name, value in rule.thresholds.items()]
            told = "; ".join(", ".join(each) for each in (limits, rule.all_needs) if each)
            lines.append(f"- `{rule.id}`: {title}.{f' ({told})' if told else ''}")
    lines += ["", "## Tables for rules", "", "These tables exist while rules run, beside [the views](database.md)."]
    for name, (text, columns) in _commented("TEMP TABLE", MEANS).items():
        lines += ["", f"### `{name}`", "", text, *_column_lines(columns)]
    return "\n".join(lines) + "\n"


def options_page() -> str:
    """Options of the Ascend family from their rules."""
    rules = all_rules()
    lines = [NOTICE.format("agent/profagent/ascend_options/rules.toml"), "# Options of profiling", ""]
    lines += [
        "These are the options of profiling that [`profagent options`](../howto/check-options.md) knows, for",
        "TensorFlow, MindSpore, torch_npu and the acl.json of Atlas devices. Each section has the options of one",
        "place where they are set. In brackets are an option's type or values, its default, and the version that",
        "introduced it. An option without type or values is a switch, which is off unless a default is given.",
        "`options check` also knows which options exclude each other, and what to do then.",
        "",
        "The list is from the vendor's pages and public source, of MindStudio 8.3, CANN 6.0 to 9.0, MindSpore 2.10 and",
        "Ascend Extension for PyTorch 7.2; `rules.toml` names the source of each option. **Nothing here was tried on",
        "hardware.** For the acl.json of an SS928 see [doctor](doctor.md#an-acljson).",
    ]
    groups: dict[tuple[str, ...], list[Key]] = {}
    for key in rules.keys:
        groups.setdefault(tuple(key.of), []).append(key)
    seen: dict[str, str] = {}
    for families, keys in sorted(groups.items(), key=lambda group: -len(group[0])):
        lines += ["", f"## {' and '.join(rules.families[family].title for family in families)}", ""]
        lines += [_option_line(key, seen) for key in keys]
    return "\n".join(lines) + "\n"


def _option_line(key: Key, seen: dict[str, str]) -> str:
    """An option by its values; those of an enumeration are told once."""
    same = seen.setdefault(key.enum or key.name, key.name)
    is_switch = key.type == "bool" or key.values == ["on", "off"]
    what = "" if is_switch else _codes(key.values) if same == key.name else f"as `{same}`"
    if not what and key.most is not None:
        what = f"{key.least} to {key.most}"
    elif not what and not is_switch:
        what = f"at least {key.least}" if key.type == "int" else key.enum if key.type == "made" else key.type
    is_usual = key.default is None or (is_switch and key.default in {"off", False})
    default = "" if is_usual else f"default {_codes(key.default if isinstance(key.default, list) else [key.default])}"
    told = "; ".join(filter(None, (what, default, key.since and f"since {key.since}")))
    return f"- `{key.name}`{f' ({told})' if told else ''}: {key.text}"


def ascend_page() -> str:
    """Families of files and the meanings of their columns, from the aliases."""
    known = ascend_families()
    lines = [
        NOTICE.format("agent/profagent/ascend/families.toml"),
        "# Results of the Ascend family",
        "",
        "Which files of other Ascend devices does `profagent import` take, and what becomes of each? How to import",
        "them is on [another page](../howto/ascend.md). Every row of every file is in the view `ascend_values`, cell",
        "by cell, as it is written there. Timelines are also in `export trace` and in the report. The words behind an",
        "arrow say what else is made of a file:",
        "",
        "- kernels: rows of the view `op_records`, and of `stats` by layer, type, model and segment",
        "- shares: counters of the one kernel beside them",
        "- steps: `stats --by step`",
        "- calls: `stats --by api`",
        "",
        "Files under *With a real sample* were tried with a real file; the others only with the columns that the",
        "vendor documents. A file is recognized by its columns or events, which `families.toml` lists, not by its",
        "name.",
    ]
    for kind, title in KINDS.items():
        lines += ["", f"## {title}"]
        for sample, tried in ((True, "With a real sample:"), (False, "With documented columns only:")):
            members = [each for each in known.family if each.kind == kind and each.sample == sample]
            told = [
                f"- {each.name}: {each.about} → {each.into}"
                + (f"; reads {_codes(each.needs)}" if kind == "table" else "")
                for each in members
                if each.into
            ]
            rows = _codes(each.name for each in members if not each.into)
            lines += ["", tried, "", *told, *([f"- rows only: {rows}"] if rows else [])] if members else []
    lines += [
        "",
        "All other tables of a database are kept row by row as well, except those of SQLite itself.",
        "",
        "## Columns",
        "",
        "These headers of summaries, columns of `StepTraceTime`, categories of events and keys of their `args` have a",
        "meaning here; all others are only in their rows. Before the arrow are the names that a column may have,",
        "behind it what it becomes. The pipes of `dtrans`, `dld` and `dstr` differ from those of an SS928.",
        "",
        *(f"- {meaning}: {_codes(known.columns[meaning])} → {place}" for meaning, place in known.places.items()),
        "",
        "Steps and their parts:",
        "",
        *(f"- {part or 'a whole step'}: {_codes(headers)}" for part, headers in known.steps.items()),
    ]
    return "\n".join(lines) + "\n"


def metrics_page() -> str:
    """Every metric and unit from the daemon's collectors, by the files of the simulated board."""
    lines = [
        NOTICE.format("daemon/profagentd/metrics/collectors.py"),
        "# Metrics of the board",
        "",
        "The daemon samples these metrics of the board while programs run ([how to](../howto/system-metrics.md)). The",
        "view [`metrics`](database.md#metrics) has a row for each sample. The unit of a metric is in brackets, and",
        "[explained below](#units).",
        "",
        "The names are those of the simulated board: `0`, `eth0`, `/` and `detector-4711` stand for the numbers,",
        "interfaces, roots and programs of yours. `profagent doctor --board NAME` says which metrics your board lacks.",
    ]
    for name, (about, metrics) in collected().items():
        lines += ["", f"## {name}", "", about, ""]
        lines += [f"- `{metric}`{f' ({unit})' if unit else ''}" for metric, unit in metrics.items()]
    lines += ["", "## Units", "", *(f"- {f'`{unit}`' if unit else 'none'}: {text}" for unit, text in UNITS.items())]
    return "\n".join(lines) + "\n"


def collected() -> dict[str, tuple[str, dict[str, str]]]:
    """Return what each collector is about, and its metrics with their units, on the simulated board.

    Ends with a message for a collector that gives nothing there, and for a unit without a meaning.
    """
    found: dict[str, tuple[str, dict[str, str]]] = {}
    with TemporaryDirectory() as folder:
        board = SimulatedBoard(Path(folder))
        collectors = all_collectors([b"/", b"."], b".")
        units: dict[str, dict[str, str]] = {name: {} for name in collectors}
        for _ in range(2):  # rates are known the second time
            for name, collect in collectors.items():
                # One that finds no file there is told below.
                with suppress(OSError):
                    units[name] |= {re.sub(r"\.\d+$", ".0", each.name): each.unit for each in collect(board.directory)}
            board.note_work(1_000_000, 3_000_000)
    # The simulated board has not the columns of every SDK.
    units["npu"] |= {f"npu.{column}": unit for (_, column), unit in NPU_COLUMNS.items()}
    for name, collect in collectors.items():
        found[name] = " ".join((getdoc(collect) or "").partition("\n\n")[0].split()), units[name]
    if silent := [name for name, (about, metrics) in found.items() if not about or not metrics]:
        sys.exit(f"no docstring, or no files of the simulated board (simulate/board.py): {', '.join(silent)}")
    if unknown := {unit for _, metrics in found.values() for unit in metrics.values()} - UNITS.keys():
        sys.exit(f"UNITS of metrics/collectors.py has no meaning of {', '.join(sorted(unknown))}")
    return found


def python_page() -> str:
    """Every name of the Python API from its list, with signatures and docstrings."""
    lines = [
        NOTICE.format("agent/profagent/api/names.py"),
        "# Python API",
        "",
        "`import profagent` gives these names; nothing else of the package is public.",
        "[How to use it](../howto/python.md).",
        "",
        *(f"- *{tier}*: {meaning}" for tier, meaning in TIERS.items()),
    ]
    for name, (_, tier) in sorted(NAMES.items(), key=lambda item: (item[0][0].isupper(), item[0])):
        found = getattr(profagent, name)
        title = f"class {name}" if inspect.isclass(found) else f"{name}{_signature(found)}"
        lines += ["", f"## `{title}`", "", f"*{tier}*. {_python_text(found)}"]
        members = vars(found).items() if inspect.isclass(found) else ()
        for member, value in members:
            is_public = not member.startswith("_") and isinstance(value, FunctionType | property | classmethod)
            if is_public and (text := getdoc(value)) is not None and member not in _INNER:
                shown = member if isinstance(value, property) else f"{member}{_signature(getattr(found, member))}"
                lines += ["", f"### `{shown}`", "", _python_text(value, text)]
    return "\n".join(lines) + "\n"


# Members that the package itself calls.
_INNER = {"of", "of_rows", "joined", "operand", "metadata"}
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!$).*)*", re.MULTILINE)


def _python_text(found: object, text: str | None = None) -> str:
    """Return a docstring as Markdown: its examples and indented blocks as code."""
    shown = text or getdoc(found) or ""
    shown = re.sub(
        r"(?:^    .*\n?)+", lambda block: f"```python\n{dedent(block[0]).rstrip()}\n```\n", shown, flags=re.MULTILINE
    )
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", shown).rstrip()


def _signature(found: Callable[..., object]) -> str:
    """Return a signature without what a reader knows: `self`, and quotes around types."""
    signature = inspect.signature(found)
    shown = [each for each in signature.parameters.values() if each.name != "self"]
    return str(signature.replace(parameters=shown)).replace("'", "")


PAGES: dict[str, Callable[[], str]] = {
    f"{page.__name__.removesuffix('_page')}.md": page
    for page in (
        commands_page,
        ledger_page,
        comparability_page,
        database_page,
        settings_page,
        limits_page,
        metrics_page,
        rules_page,
        options_page,
        ascend_page,
        python_page,
        documents_page,
        codes_page,
        doctor_page,
    )
}


def leaves(name: str, command: click.Command | None) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands that do something, with their words."""
    assert command is not None, name
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            yield from leaves(f"{name} {word}".strip(), command.get_command(context, word))


def _options(command: click.Command) -> list[click.Option]:
    return [each for each in command.params if isinstance(each, click.Option) and not each.hidden]


def _option(option: click.Option) -> tuple[str, str]:
    """An option's name with its value, and its help."""
    label, text = option.get_help_record(click.Context(click.Command("x"))) or ("", "")
    bounds = r"(?:required|[\d.<=]*x[\d.<=>]+)"
    text = re.sub(rf" \[{bounds}\]$|(?<=\S) \[default: [^\]]*\]$|; {bounds}(?=\]$)", "", " ".join(text.split()))
    return label.strip().replace("INTEGER RANGE", "N"), text


def _shared_options(commands: Iterable[click.Command]) -> dict[str, str]:
    """Options that two or more commands explain in the same words; of several such explanations the usual one."""
    counts = Counter(_option(option) for command in commands for option in _options(command))
    return {label: text for (label, text), count in reversed(counts.most_common()) if count > 1}


def _command_lines(name: str, command: click.Command, about: str, shared: dict[str, str]) -> Iterator[str]:
    """What it does, then the options that are explained here, then the others."""
    page, told = EXPLAINED.get(name, ("", ""))
    paragraphs = [" ".join(each.split()) for each in (command.help or "").replace("\b", "").split("\n\n")]
    paragraphs[:] = [each for each in paragraphs if not each.startswith("Example")]
    if page:
        paragraphs[:] = [f"{paragraphs[0] if ' ' in name else about}{_format_line(name)} [More]({page})."]
    context = click.Context(command)
    words = [f"{each.opts[0]} {each.make_metavar(context)}" for each in _options(command) if each.required]
    words += [each.make_metavar(context) for each in command.params if isinstance(each, click.Argument)]
    if words:
        paragraphs[0] = f"`{' '.join(words)}`: {paragraphs[0]}"
    yield "\n\n".join(paragraphs)
    own, also = [], []
    for option in _options(command):
        label, text = _option(option)
        if shared.get(label) != text and option.opts[0] not in told.split():
            own.append((label, text))
        elif not option.required and option.opts[0] not in COMMON:
            also.append(label if "[" in label and label not in shared else option.opts[0])
    for title, names in SETS.items():
        if set(names) <= set(also):
            also = [f"*{title}*", *(each for each in also if each not in names)]
    if own:
        yield from ("", *_list(own))
    if also:
        yield from ("", f"Also: {', '.join(each if '*' in each else f'`{each}`' for each in also)}.")


def _columns(schema: str) -> dict[str, list[str]]:
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(schema)
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'view'")]
        return {name: [row[1] for row in database.execute(f"PRAGMA table_info({name})")] for name in names}


def _commented(kind: str, schema: str) -> dict[str, tuple[str, dict[str, str]]]:
    """What the comment above each view or table says: its text, and its columns."""
    found = re.findall(rf"^((?:--.*\n)+)CREATE {kind} (?:IF NOT EXISTS )?(\w+)", schema, re.MULTILINE)
    text = re.compile(r"^-- (?!  )(.*)$", re.MULTILINE)
    return {name: (" ".join(text.findall(comment)), _meanings(comment)) for comment, name in found}


def _meanings(comment: str) -> dict[str, str]:
    """Columns by what they mean; of a line of names without a text the names tell it."""
    comment = re.sub(r"\n-- {4,}", " ", comment)  # a meaning of several lines
    told = re.findall(r"^--   (\w+) +(.*)$", comment, re.MULTILINE)
    lines = re.findall(r"^--   (\w+(?:, \w+)*)$", comment, re.MULTILINE)
    return {**dict(told), **{name: "" for line in lines for name in line.split(", ")}}


def _column_lines(columns: dict[str, str], others: str = "") -> Iterator[str]:
    """Those that are explained, then those whose names tell it, and the others."""
    if explained := _list((name, text) for name, text in columns.items() if text):
        yield from ("", *explained)
    if also := [each for each in (_codes(name for name, text in columns.items() if not text), others) if each]:
        yield from ("", f"Also: {', '.join(also)}.")


def _codes(words: Iterable[object]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _list(rows: Iterable[tuple[str, str]]) -> list[str]:
    return [f"- `{name}`: {text}" for name, text in rows]


if __name__ == "__main__":
    main()
