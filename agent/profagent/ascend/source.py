"""Tables for results of the Ascend family: every row of every file, as it stands in the file."""

from __future__ import annotations

from profagent.ascend.events import gather
from profagent.ingest.source import DrawnCounters, DrawnEvents, Gathered, Source, View
from profagent.ingest.spools import table

_COLUMNS = """
            rows  INTEGER NOT NULL,      -- below, a JSON array of these: texts by place, or an event's object
            cells TEXT NOT NULL"""

_SCHEMA = f"""
{table("ascend_block", _COLUMNS)}
        CREATE TABLE IF NOT EXISTS ascend_file (
            log     INTEGER PRIMARY KEY REFERENCES log,
            session INTEGER NOT NULL REFERENCES session,
            kind    TEXT NOT NULL,      -- summary, timeline, report or table
            family  TEXT NOT NULL,
            columns TEXT NOT NULL,      -- a JSON array, empty where rows are objects
            rows    INTEGER NOT NULL
        );
        CREATE TRIGGER IF NOT EXISTS ascend_file_of_log AFTER DELETE ON log
        BEGIN DELETE FROM ascend_file WHERE log = old.log; END;
        CREATE TRIGGER IF NOT EXISTS ascend_file_of_cleared_log
        AFTER UPDATE OF generation ON log WHEN new.generation = 0
        BEGIN DELETE FROM ascend_file WHERE log = old.log; END;
-- Files that were imported from another framework, and tables of such a database.
--   file     its path in the imported directory
--   kind     `summary`, `timeline`, `report` or `table`
--   columns  its header: a JSON array, empty where each row is an object
--   rows     how many rows or events it has
--   family
CREATE VIEW IF NOT EXISTS ascend_files AS
SELECT f.session, j.name AS job, l.shown_path AS file, f.kind, f.family, f.columns, f.rows
FROM ascend_file f JOIN log l USING (log) JOIN job j USING (job);

-- Cells of these files, as they are written there.
--   row          counts the rows of the file, from 1
--   column_name  its header, or its key in an event
--   value        the text as it is in the file; of an event's `args` a JSON object
--   file, family
CREATE VIEW IF NOT EXISTS ascend_values AS
SELECT f.session, j.name AS job, l.shown_path AS file, f.family, t.number + r.key AS row,
       CASE WHEN typeof(v.key) = 'integer' THEN json_extract(f.columns, '$[' || v.key || ']') ELSE v.key END
       AS column_name, v.value
FROM ascend_file f JOIN log l USING (log) JOIN job j USING (job) JOIN ascend_block t ON t.log = f.log
JOIN json_each(t.cells) r JOIN json_each(r.value) v;
"""  # noqa: S608 - constants

# Events of a timeline are stored as texts; `gather` puts those of one session into temporary tables first.
_EVENTS = View(
    name="temp.ascend_events",
    events=DrawnEvents(
        noun="events of timelines",
        process="process",
        track="thread",
        order="track",
        name="name",
        category="category",
        lane="process || ', ' || thread",
        start_us="start_ns / 1000",
        start_rest_ns="start_ns % 1000",
        end_us="end_ns / 1000",
        end_rest_ns="end_ns % 1000",
        duration_us="(end_ns - start_ns) / 1000.0",
        is_instant="is_instant",
        attributes="args",
    ),
)
_COUNTERS = View(
    name="temp.ascend_counters",
    counters=DrawnCounters(
        process="process",
        name="name",
        unit="''",
        time_us="start_ns / 1000",
        rest_ns="start_ns % 1000",
        value="args",
        is_object=True,
        order="track, start_ns",
    ),
)

SOURCE = Source(
    schema=_SCHEMA,
    views=(
        View(name="ascend_files", whole=frozenset({"rows"})),
        View(name="ascend_values", whole=frozenset({"row"}), mixed=frozenset({"value"})),
    ),
    gathered=Gathered(gather=gather, views=(_EVENTS, _COUNTERS)),
)
