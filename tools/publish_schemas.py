"""Write the schemas of documents that have no file yet (`make docs`), or check that each is as it was published.

A published schema is never changed: a document that changes needs another version in `profagent.cli.documents`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from profagent.cli.documents import DOCUMENTS, file_name, schema_of, schema_text

FOLDER = Path(__file__).resolve().parent.parent / "agent" / "profagent" / "schemas"


def main() -> None:
    """Publish what is new; end with an error if a published schema would change."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    is_check = parser.parse_args().check
    for name, document in DOCUMENTS.items():
        file, text = FOLDER / file_name(name, document.version), schema_text(schema_of(name))
        if not file.exists() and not is_check:
            file.write_text(text, "utf-8")
        elif not file.exists():
            sys.exit(f"{file.name} is not there: run `make docs`")
        elif file.read_text("utf-8") != text:
            sys.exit(f"the document {name} has changed: raise its version in profagent/cli/documents.py")


if __name__ == "__main__":
    main()
