"""A daemon whose board is a directory. Arguments: that directory, then those of `profagentd`."""

from __future__ import annotations

import sys
from pathlib import Path

from profagentd.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], filesystem=Path(sys.argv[1])))
