"""Reference pages about issue codes: the list of all, and the checks of `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from profagent.codes import IssueFamily, Severity
from profagent.doctor.checks import CHECKS_OF
from profagent.doctor.job import FACTS
from profagent.explain.registry import issue_codes

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOTICE = "<!-- `make docs` makes this page from {}. -->"
# Where each family stands, and what its issues are.
_FAMILIES = {
    IssueFamily.LEDGER: "reasons of the [ledger](ledger.md) of a session",
    IssueFamily.CHECK: "checks of [`doctor`](doctor.md) and of [`options check`](../howto/check-options.md)",
    IssueFamily.ADVICE: "rules of [`advise`](rules.md); … stands for what a finding fills in",
    IssueFamily.COMPARISON: "differences of two runs that may [not be compared](comparability.md)",
    IssueFamily.EXIT: "reasons why a command ended with another exit code than 0",
}


def codes_page() -> str:
    """Return the page of all issue codes, by the alphabet."""
    families = "\n".join(f"- *{family}*: {text}" for family, text in _FAMILIES.items())
    rows = "\n".join(
        f"| `{code}` | {each.family} | {each.severity} | {each.meaning} | {each.exit_code or ''} | {each.remedy} |"
        for code, each in sorted(issue_codes().items())
    )
    return f"""{_NOTICE.format("the tables of issue codes")}
# Codes

Everything that profagent finds wrong or worth a remark has a code. The code stays the same when its text is improved,
and no two have the same, so that programs and searches can rely on it. `--json` documents have it as `reason` (ledger),
`check` (doctor), `rule` (advise) and `code` (differences of runs, failed commands).

```
profagent explain ring-full             # what it means and what to do
profagent explain                       # all codes
profagent explain --json                # the same for programs
```

{families}

The severity is in the words of the family. A check has the severity of its worst mark: *bad* is ✗, *unknown* is `?`.
The exit code is that of commands whose result depends on the issue, as [the commands](commands.md) say.

| code | family | severity | meaning | exit code | what to do |
|---|---|---|---|---|---|
{rows}
"""


def doctor_page() -> str:
    """Return the page of all checks of `doctor`."""
    parts = {title: "\n".join(_rows(title)) for title in CHECKS_OF}
    facts = "\n".join(
        f"| `{fact}` | {', '.join(f'`{name}`: {text}' for name, text in ways.items())} |"
        for fact, ways in FACTS.items()
    )
    return f"""{_NOTICE.format("agent/profagent/doctor/checks.py")}
{_DOCTOR}
## Host and board

{parts["Host and board"]}

The remedy of `database` loses labels, baselines and kept losses. Which systems of boards were tried, and which never,
is listed with [the installation](../howto/install-on-a-board.md#which-boards).

## An acl.json

`profagent aclconfig check` says the same about any file, and `aclconfig set` mends it. With [interval
0](../howto/record.md#fewer-inferences) only the first inference is recorded.

{parts["An acl.json"]}

## A lake

{parts["A lake"]}

## A JOB

{parts["A JOB"]}

### Facts that nobody knows

Some facts about the records are in no public document; only a JOB of a real board can settle them. For each, a line
says what this JOB *confirms* or *refutes*, or why it *cannot tell*. profagent reads the first alternative of each as
the right one, and says ✗ where the JOB refutes it. A simulated JOB proves nothing. If you have a real one, please [send
it](../howto/send-evidence.md).

| check | alternatives |
|---|---|
{facts}
"""


def _rows(title: str) -> Iterator[str]:
    yield from ("| check | when | what to do |", "|---|---|---|")
    marks = {Severity.BAD: "✗", Severity.UNKNOWN: "?", Severity.INFO: "✓"}
    for check in CHECKS_OF[title]:
        yield f"| `{check.code}` | {marks[check.severity]} {check.text} | {check.remedy} |"


_DOCTOR = """# Doctor

`profagent doctor` examines this host, a board, a JOB or a lake, and says what is wrong and how to mend it. It changes
nothing. Run it first when something does not work.

```
profagent doctor                        # this host: workspace, keys, named boards
profagent doctor --board euler          # this host and the board; --via ssh works, too
profagent doctor JOB…                   # a JOB directory of this host, and each acl.json beside it
profagent doctor --lake /mnt/lake       # what a lake's folder or store must do, tried there and removed again
```

These are some lines about a simulated board:

```
board euler at 127.0.0.1:50773 [simulated]
  ✓ link          profagentd answers at 127.0.0.1:50773
  ✓ clock         the board's clock is +0.000214 s ± 0.000692 s from this host's
  ? npu-errors    no svp_npu or svp_nnn below /proc/umap
  ✓ root          /tmp/jobs.d can be read; JOBs: 1, open: 1
  ✗ path          /tmp/jobs.d has '.': the manual allows letters, digits and _ alone; …
                → choose another `output` in acl.json, and a root above it: letters, digits and _

13 ok, 2 to mend, 4 not known
```

✓ is fine, ✗ is to be mended, and `?` is not known, or right only if you want it. The line with `→` says what to do. The
exit code is 1 if there is a ✗, else 0.

The tables below list every check, with its worst mark and when it has it, and what usually helps. The line of a finding
may say more exactly what to do. `?` also stands for a check that this host or board gives no answer to. `profagent
explain CHECK` prints one row.
"""
