# Names of the Python API for type checkers; `profagent.api.names` is the list of them.
from profagent.api.answers import Answer as Answer
from profagent.api.answers import diff as diff
from profagent.api.live import LiveEvent as LiveEvent
from profagent.api.live import LiveEvents as LiveEvents
from profagent.api.live import LiveRecording as LiveRecording
from profagent.api.live import record as record
from profagent.api.live import watch as watch
from profagent.api.provenance import Provenance as Provenance
from profagent.api.session import Session as Session
from profagent.api.table import Table as Table
from profagent.api.workspace import Workspace as Workspace
from profagent.api.workspace import open as open  # noqa: A004 - its name in the API
from profagent.errors import ProfagentError as ProfagentError
from profagent.errors import StoreError as StoreError
from profagent.errors import UnreachableError as UnreachableError
from profagent.errors import UsageError as UsageError
from profagent.stats.levels import LevelChange as LevelChange
from profagent.stats.levels import level_changes as level_changes
from profagent.tables.arrow import Field as Field

__version__: str
__all__ = [
    "Answer",
    "Field",
    "LevelChange",
    "LiveEvent",
    "LiveEvents",
    "LiveRecording",
    "ProfagentError",
    "Provenance",
    "Session",
    "StoreError",
    "Table",
    "UnreachableError",
    "UsageError",
    "Workspace",
    "diff",
    "level_changes",
    "open",
    "record",
    "watch",
]
