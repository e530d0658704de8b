#!/bin/sh
# Installs this daemon on the board on which it runs, where SSH does not lead there. POSIX sh, and what BusyBox has.
# The tree's own Python does the work: profagent/deploy/bundle/by_hand.py.
here=$(cd "$(dirname "$0")" && pwd -P)
exec "$here/bin/python" -I -B -c 'import sys
sys.path.insert(0, sys.argv.pop(1))
from profagent.deploy.bundle.by_hand import main
sys.exit(main())' "$here/installer" "$here" "$@"
