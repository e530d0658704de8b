"""Reference pages about what programs read."""

from __future__ import annotations

from profagent.cli.documents import DOCUMENTS

_NOTICE = "<!-- `make docs` makes this page from {}. -->"


def documents_page() -> str:
    """Return the page of all documents."""
    rows = "\n".join(
        f"| `{name}` | {each.version} | {' or '.join(f'`{one}`' for one in each.command.split(', '))} | {each.about} |"
        for name, each in DOCUMENTS.items()
    )
    return f"""{_NOTICE.format("agent/profagent/cli/documents.py")}
# Documents

With `--json` a command prints its answer as one line of JSON on standard output; `watch` prints a line for each event.
Messages for people go to standard error. A command that fails prints the document `failure` instead. Each document has
a name, a version, and a JSON Schema (draft 2020-12):

```
profagent schema                        # the documents and their versions
profagent schema stats                  # the schema of one
profagent schema stats --version 1      # that of a certain version
```

The schemas are made from the types that the program itself uses, and are part of the package. A published schema never
changes. When a key is added, removed or gets another type, the document gets the next version, and the schemas of
earlier versions stay. A program that must not break checks the version when it is installed: `$id` of the schema is
`profagent:NAME:VERSION`. It ignores keys that it does not know.

Unless a key says otherwise, times are in µs, times of day are µs since 1970, and `null` means 'not known'. Names end
with the unit where it is another one: `start_s`, `size_bytes`, `npu_utilization` in %.

| document | version | printed by | content |
|---|---|---|---|
{rows}
"""
