"""Bounds of the agent: the largest number or size of something, and the longest wait for something.

The text below a bound has its unit and, behind a colon, what happens beyond it. A comment is the title of the bounds
that follow. `make docs` generates docs/reference/limits.md from them, and fails for a bound without its text.
"""

from __future__ import annotations

# What a board may say
LARGEST_JOBS = 20_000
"""JOBs of a board: the link ends, for the board breaks the protocol."""
LARGEST_LOGS = 4096
"""logs announced at a time: the link ends, for the board breaks the protocol."""
LONGEST_PATH_BYTES = 1024
"""bytes of a log's path: the link ends; a path in a directory that is imported is left out, with an entry in the
ledger."""
LONGEST_NAME_BYTES = 255
"""bytes of each name in a path: the path is refused, as no file system has longer ones."""
LARGEST_CHUNK_BYTES = 256 << 10
"""bytes of a log in one message: the link ends, for the board breaks the protocol."""
LARGEST_RECORDED_LOSSES = 5_000
"""losses that a board keeps: the link ends, for the board breaks the protocol; a daemon keeps 1,000."""
LARGEST_ENTRIES = 1000
"""entries of one message: the link ends, for the board breaks the protocol."""
LARGEST_MESSAGE_BYTES = 4 << 20
"""bytes of a message: gRPC refuses the message, and the call ends."""
MOST_BREACHES = 5
"""streams in succession that break the protocol at once: the board is given up."""
LARGEST_EXAMINED_BYTES = 64 << 10
"""bytes of each file that `doctor` sees: the rest is left out."""
LONGEST_LIST = 64
"""values of a list of facts: the rest is left out."""
LONGEST_TEXT = 1000
"""characters of a text: the rest is left out."""
LONGEST_GOODBYE = 200
"""characters of the reason for a goodbye: the rest is left out."""
LONGEST_SHOWN_BYTES = 256
"""bytes of a path in a message about a breach: the rest is left out."""
LONGEST_IDENTITY = 253
"""characters of a name in a certificate: the rest is left out."""
LARGEST_TIME_US = 2**62
"""µs of a time or duration: the link ends; a sample of metrics is counted as damaged, as sums of two must stay integers
of the database."""
LARGEST_AMOUNT = 2**48
"""bytes, logs, inferences or generations: the link ends, as no board's disk holds so many."""
LARGEST_MARK_NUMBER = 2**48
"""marks of a program: the mark counts as damaged, as no program numbers so many in centuries."""
LONGEST_REASON = 64
"""characters of the name of a loss: the rest is left out."""
LONGEST_DETAIL = 1000
"""characters of the detail of a loss: the rest is left out."""
LARGEST_INTEGER = 2**63 - 1
"""as a number of a board, a file or a result: a larger number is damaged, or stored as text or as a float, because
SQLite's integers end here."""

# Waiting for a board
CALL_TIMEOUT_S = 10.0
"""s for a call's answer: the link ends, and is tried again."""
HANDSHAKE_TIMEOUT_S = 10.0
"""s for TCP and TLS to be connected: the board counts as unreachable."""
HANDSHAKE_ATTEMPTS = 2
"""connections that end during the handshake: the board counts as refusing the certificate."""
PING_MS = 10_000
"""ms without a word: the connection is probed; a daemon allows a probe every 5 s."""
PING_TIMEOUT_MS = 4_000
"""ms for the answer to a probe: the connection counts as lost."""
SILENT_HEARTBEATS = 3
"""heartbeats without a word: the link ends, and is tried again."""
QUIET_HEARTBEATS = 1.5
"""heartbeats without a word: the time counts as not covered."""
LONGEST_HEARTBEAT_S = 5.0
"""s between two heartbeats: a board that asks for more gets this, so that a half-open link is found within 15 s."""
LONGEST_DELAY_S = 30.0
"""s between two attempts to connect: the wait is not doubled any more."""
SLOWEST_DELAY_S = 60.0
"""s of delay that a refusal, or a daemon's own request, sets before an attempt: the attempt is made anyway."""
LEAVE_BEHIND_S = 0.25
"""s for the board to end the stream where something is known to be missing: the capture ends, and its session is
incomplete."""
LEAVE_S = 1.0
"""s for the board to end the stream: the host ends it."""
MEASURING_S = 8.0
"""s for the board to say how much a JOB holds: the progress has no total."""
MEASURING_AT_END_S = 1.5
"""s for the same answer in a capture that is stopped: the warning has no size."""
GONE_S = 30.0
"""s without a byte of a JOB whose program has ended: the capture ends."""
AWAY_S = 600.0
"""s for the link of such a JOB to come back: the capture ends."""
ANSWER_S = 3.0
"""s at a capture's end for the board to say that everything has come: the capture ends, and its session is
incomplete."""

# Recording
QUEUED_MESSAGES = 32
"""messages of a board between link and disk: the link is read no further until the disk has caught up."""
LARGEST_BATCH_BYTES = 4 << 20
"""bytes of logs in one batch: the next batch begins."""
LARGEST_BATCH_EVENTS = 5_000
"""events in one batch: the next batch begins."""
ENTRIES_PER_MESSAGE = 1_000
"""logs in one message to the board: the next message begins."""
MOST_ENDED_INTERVALS = 10_000
"""intervals of coverage that wait to be stored: the oldest is forgotten; `watch` stores none."""
REMEMBERED_SHOWN_MODELS = 1_000
"""models of a JOB whose inferences are counted by `--inferences`, `--every` or `--schedule`: the model that ran least
recently is forgotten, and a later inference of it counts as new."""
REMEMBERED_SHOWN_INFERENCES = 100_000
"""inferences of such a model: the oldest is forgotten, and a later part of it counts as new."""
STRADDLING_INFERENCES = 1_000
"""inferences under way when a capture begins: the oldest is forgotten, and may be shown incomplete."""
MOST_SHOWN_LOSSES = 1_000
"""losses in a board's own list that are compared with those shown before: further ones are not shown on the terminal;
the ledger has them."""
EXPOSED_MODELS = 64
"""models whose pace `--metrics-listen` shows: the one that ran least recently is left out."""
MOST_JOB_LINES = 10
"""JOBs named at the end of a capture that lacks some of them: the rest is counted; `profagent ledger` lists them."""
MEASURING_SHARE = 0.05
"""of a capture's time for measuring how much of a JOB is here: the next measurement waits."""
REMEMBERED_JOBS = 16
"""JOBs with open files and a decoder: the files of the JOB heard of least recently are closed, and opened again when it
goes on."""
MOST_REMARKS = 5_000
"""remarks about a board that wait for its next batch: they are committed without one."""

# Mirror and decoding
OPEN_FILES = 32
"""files of a JOB open at a time: the one used least recently is closed, and opened again when it goes on."""
REMEMBERED_FOLDERS = 1024
"""folders of a mirror that are known to be no links: all are looked at again."""
FILE_PIECE_BYTES = 1 << 20
"""bytes read of a file at a time: the next piece is read."""
OPEN_LOGS = 100_000
"""logs of a JOB that wait for bytes or for a new `.done`: the one noted first counts as complete, and is judged again
when it goes on."""
NAMED_LOGS = 16
"""logs of metrics whose names an observer knows: the oldest is forgotten; a board writes one at a time."""
CALLS_BLOCK_BYTES = 4 << 20
"""bytes of a log of calls that are read at a time to restore its state: the next block is read."""
MOST_LAYERS = 20_000
"""layers of a model: its table counts as damaged, and its records have no names."""
REMEMBERED_PARTS = 256
"""combinations of a log's facts with a known state: the state is computed again."""
REMEMBERED_NAMES = 4096
"""parsed names of logs: a name is parsed again."""
REMEMBERED_PATHS = 8192
"""checked paths: a path is checked again."""
REMEMBERED_SEQUENCES = 4096
"""sequence numbers of a segment with known layers: the layer is computed again."""
REMEMBERED_SEGMENTS = 64
"""segments of a model with known layers: the layer is computed again."""
MOST_OVERLAPPING = 8
"""calls of a model that overlap: later ones are ignored, and an inference may have no latency."""
MOST_RUNS = 256
"""runs of a program's numbers in a segment of marks: those in the middle are joined, and losses between them are
reported as one."""
OPEN_FRAMES = 1024
"""frames of a process that wait for further stages: the one with the smallest number is complete, and a later stage of
it counts as a frame of its own."""
FRAME_DELAY_S = 1.0
"""s by which a mark may come after one that began later, and that a frame waits for a further stage while its program
runs: a later one counts as a frame of its own on the screen and in alarms."""
MOST_WAITING_MARKS = 20_000
"""marks of frames that wait for earlier ones: the earliest is taken, whatever may come before it."""
SHOWN_FRAMES = 600
"""frames of which the screen has the figures: the oldest is forgotten."""
LARGEST_AGE_S = 3600.0
"""s from the capture of a frame to its end: the time of the capture is of another clock, and the age is unknown."""
LARGEST_CONTENT_BYTES = 4 << 20
"""bytes of a file that is decoded as a unit: the file is copied, not decoded, as no file of the runtime is so large."""
REMEMBERED_MODELS = 64
"""models of a JOB with tables in memory: a table is read again."""
REMEMBERED_LOGS = 1024
"""logs of a JOB with a decoding state: the one that grew least recently is decoded again when it goes on."""
REPORTED_TABLES = 1024
"""tables of a JOB whose faults are in the ledger: they are reported again, which changes nothing."""
LARGEST_RATIO = 1.01
"""as a ratio of a record to the whole: the counter map is doubted."""

# Inferences that come whole, and directories that are imported
LARGEST_PLAIN_BYTES = 4 << 20
"""bytes of a log that is decoded together with others: the log is decoded by itself."""
MOST_NEW_LOGS = 100_000
"""announced logs that have not come yet: all of them are decoded one by one."""
FILES_AHEAD = 1_000
"""files that the kernel is asked to read ahead: the next ones are requested when half of these are read."""
FIRST_FILES_AHEAD = 64
"""files in the first request: the next has more, if many of these are not in memory."""
BYTES_AHEAD = 32 << 20
"""bytes of files that are requested ahead: further files are requested later."""
READ_TOGETHER_BYTES = 4 << 20
"""bytes of an imported file read at a time: the next piece is read. A multiple of every record's size."""
PARTS_PER_BATCH = 2_000
"""inferences, and pieces of other files, in one batch of an import: the next batch begins."""
LOGS_PER_PAGE = 4_000
"""logs for which an import asks at a time what is stored: the next page begins."""
LARGEST_LOCAL_DONE_BYTES = 4096
"""bytes of a `.done` that is read to see if its data is complete: the data counts as incomplete."""

# The database
BUSY_TIMEOUT_MS = 60_000
"""ms for another process to finish writing: the command ends with 'the database is locked'."""
CACHE_KIB = 32_768
"""KiB of pages in memory for each writing connection: pages are read again."""
READER_CACHE_KIB = 8_192
"""KiB of pages in memory for each reading connection: pages are read again."""
MOST_BEGINNINGS = 100
"""attempts of several connections to begin on one state: the command ends, as others write without pause."""
VARIABLES_PER_QUERY = 10_000
"""values in one query: the next query begins; SQLite allows 32,766."""
ROWS_PER_PAGE = 5_000
"""rows fetched at a time: the next page is fetched."""
COUNTERS_PER_BATCH = 20_000
"""records in one batch of `redecode`: the next batch begins."""
MOST_SAMPLING_NOTES = 1_000
"""ledger entries about gaps in the samples of a model in a session: one more entry counts the rest; the view
`sample_gaps` has each."""
NAMED_PICTURES = 4
"""inferences named in the entry of a gap: the rest is counted."""
LONGEST_LABEL = 256
"""characters of a label's value: `label` refuses it; an import leaves it out."""
RECORDS_PER_PAGE = 10_000
"""records of the inferences that an export reads at a time: the next page has fewer inferences."""
MOST_READING_PROCESSES = 2
"""processes that read pages for an export: more would wait for the one that writes."""
PAGES_AHEAD = 4
"""pages read before they are written: reading waits."""
READERS = 2
"""connections that read a JOB side by side: each reads a larger part."""
RECORDS_PER_CHUNK = 100_000
"""records read at a time by a query over all of them: the next chunk begins."""
SAMPLED_FILES = 100
"""files of a model whose counters are read: of more, as many are chosen evenly."""
SAMPLED_RECORDS = 10_000
"""records of each such file whose counters are read: the rest is left out."""
MOST_GAPS = 20
"""listed gaps of a session's coverage: the longest stay."""
MOST_REASONS = 20
"""listed reasons for which a session is incomplete: those noted first stay."""
INFERENCES_PER_PAGE = 2_000
"""inferences that an export reads at a time: the next page begins."""
REMEMBERED_PLACED_LOGS = 4
"""logs with several inferences whose records have a known place: the place is searched again."""
REMEMBERED_TABLES = 256
"""models whose table of layers is in memory: it is read again."""
TIMES_TOGETHER = 1_000_000
"""times of layers computed together, over inferences and layers: fewer inferences at a time."""
MOST_NOTED = 1000
"""entries of a reason in the ledger that name no log, of a JOB or board: one more entry counts the rest."""
ROWS_TOGETHER = 100
"""rows of records in one statement: the next statement begins; SQLite allows 32,766 values."""
JUDGED_TOGETHER = 2_000
"""inferences judged together: the next ones are judged."""
REMEMBERED_STATES = 256
"""combinations of known states: one is computed again."""

# Objectives
FEWEST_JUDGED = 10
"""values that a verdict on an objective takes, but for a largest or smallest value: the verdict is unknown."""
JUDGED_S = 60.0
"""s of a board's time that `watch` and `record` judge: what is older counts no more, and an alarm ends when its
objective was not exceeded for so long."""
MOST_JUDGED = 5_000
"""inferences of a model, or frames of a program, in that time: the oldest counts no more."""
JUDGED_MODELS = 64
"""models, and programs with frames, that are judged: the one that ran least recently is judged no more."""
SHOWN_CASES = 5
"""models, layers or stages that exceed an objective, in its lines: the others are counted; `--json` has all."""

# Watching
LARGEST_DATABASE_IN_MEMORY_BYTES = 96 << 20
"""bytes of the database of a watched board: the older half of its inferences is forgotten, including open ones, of
which nothing more is shown."""
LARGEST_REMEMBERED_BYTES = 64 << 20
"""bytes of a watched board's files that decoding may need again: those used longest ago are forgotten; if one grows or
gets a table of layers after that, it is not decoded again, with an entry in the ledger."""
REMEMBERED_GROWING = 8_192
"""growing files of a watched JOB: the digest of the one that grew least recently is not checked."""
SILENCE_S = 5.0
"""s without an inference: `watch` says so, with a likely reason."""
REMEMBERED_FIRST_SEEN = 1_000
"""models whose inferences are compared, to find an interval of 0: the one that ran least recently is forgotten, and
begins anew."""
HOLD_S = 1.0
"""s that lines of a JOB wait for it to have caught up: they are printed."""
HELD_INFERENCES = 10_000
"""inferences that wait for it: all are printed."""
SHOWN_MODELS = 16
"""models on the screen: the one that ran least recently is removed."""
SHOWN_CALLS = 64
"""calls on the screen: the one made least recently is removed."""
SHOWN_METRICS = 200
"""metrics on the screen: the one that came least recently is removed."""
SHOWN_SPAN_NAMES = 100
"""names of spans on the screen: the one that came least recently is removed."""
SHOWN_EVENTS = 300
"""messages on the screen: the oldest is removed."""
SHOWN_VALUES = 120
"""values of a metric, call or span in its chart: the oldest is removed."""
MOST_TIMES = 2_000_000
"""times of a model's layers: fewer inferences are in its figures."""
REMEMBERED_COUNTERS = 32
"""inferences with counters in memory: the oldest is removed, and the bound of a layer is a mean over these."""
REMEMBERED_SAMPLES = 100_000
"""samples of a model in memory, to find those that never came: a sample before the older ones is not counted."""
COMPARED_MODELS = 256
"""models whose samples are compared: the figures of the one that ran least recently stay as they are."""
CALLED_MODELS = 1_000
"""models with calls in memory: latencies of the one that ran least recently come from its records."""
REMEMBERED_CALLS_OF_MODEL = 8_192
"""calls of a model: the oldest is forgotten."""
MOST_WAITING = 8_192
"""inferences of a model that wait for their call: the oldest no longer waits."""
REMEMBERED_EMITTED = 100_000
"""inferences with an event in memory: an older one that is judged again has a second event."""
REMEMBERED_JOB_STATES = 10_000
"""JOBs whose state was reported: that of the one that changed least recently is reported again."""
OPEN_INFERENCES = 100_000
"""inferences that wait for a part: no line says that the oldest waits."""
MOST_HELD_INFERENCES = 1_000
"""inferences that wait for the names of their layers, as the table was only announced: the oldest is shown without
names."""
SHOWN_ENTRIES = 10_000
"""files whose entries in the ledger were shown: those of the oldest are shown again."""
INFERENCES_PER_LOOK = 500
"""inferences read at a time for their events, of those that a batch judged: the rest is read when nothing else
comes."""
WAITING_PER_LOOK = 2_000
"""inferences at a time that are reported as waiting: the rest follows."""
PATIENCE_S = 2.0
"""s that an inference waits for its parts: a line says that its figures are pending, and why."""
REMEMBERED_LATENCIES = 240
"""inferences of a model on the screen, and in the pace for Prometheus: the oldest is removed."""
LONGEST_NAME_IN_LINE = 24
"""characters of a name in a line: the rest is left out."""
SHOWN_SPANS = 6
"""spans in a line: those with less time are left out."""
LONGEST_PAUSE_S = 2.0
"""s of a pause in a replay: the replay goes on."""
REMEMBERED_COLLECTIONS = 64
"""collections of a board between two lines of it: the one heard of least recently is forgotten."""
REMEMBERED_SPANS = 100
"""names of spans between two lines of a board: the one that came least recently is forgotten."""

# The Python API
FEWEST_FOR_A_QUANTILE = 200
"""values of its past that a rule of the flight recorder needs for a quantile: with fewer the rule makes no incident."""
MOST_IN_RING = 50_000
"""inferences that a flight recorder holds undecided: the oldest are decided at once, whatever comes after them."""
RING_STEP_S = 0.5
"""s between two looks of a flight recorder at what came: what came meanwhile waits."""
RING_SETTLE_S = 2.0
"""s for which a flight recorder keeps every inference: by then the board has heard that it arrived."""
CALL_PATIENCE_S = 5.0
"""s for the call of an inference: a flight recorder then takes the latency from the records."""
CALLS_BEHIND_US = 1_000_000
"""µs behind an inference in which its call ends: a flight recorder then takes the latency from the records."""
THINNED_LOGS_S = 10
"""s for which the position of a thinned log is remembered: later the log is known by its inference alone."""
JUDGED_BY_RULES = 256
"""inferences that rules judge by one bound: for the next ones the bound is computed anew."""
MARKS_SEEN_AGAIN = 5_000
"""marks of each log that a flight recorder reads again after a restart, for the past of frames: older ones no longer
count for a rule's bound."""
REMEMBERED_FIGURES = 120
"""minutes with values, of each layer and latency, from which the past is known after a restart: older values no longer
count for a rule's bound."""
MOST_SPARE_FILES = 4_000
"""files of thinned inferences that the next inferences are written into: further ones are removed."""
MOST_THINNED_TOGETHER = 4_000
"""inferences whose records go in one transaction: the others follow in the next."""
MOST_WAITING_EVENTS = 10_000
"""events of `profagent.watch` that wait for their reader: the oldest is dropped, and `lost` counts it."""
ROWS_IN_REPR = 10
"""rows of a table in a notebook: the others are counted."""
LARGEST_VALUE_BYTES = 16 << 20
"""bytes of a value in a query of a session: the query fails."""
WIDTH_OF_REPR = 120
"""characters of a table's lines: further columns are named below it."""

# The MCP server
SHOWN_ANSWER_ROWS = 20
"""rows of an answer unless `top` says another number: a caveat counts the others."""
MOST_ANSWER_ROWS = 1_000
"""rows that `top` may ask for: the call is refused."""
LARGEST_ANSWER_BYTES = 1 << 20
"""bytes of an answer: the call fails, and asks for fewer rows."""
LARGEST_ANSWER_VALUE_BYTES = 64 << 10
"""bytes of a value in a query: the query fails."""
LONGEST_ANSWER_QUERY_S = 10.0
"""s for a query: it is interrupted, and fails."""
LONGEST_ASKED_CAPTURE_S = 600.0
"""s of a capture by the tool `record`: the call is refused."""
SHOWN_CAVEATS = 40
"""caveats of an answer: the gravest come first, the others are counted."""

# Results of other tools
MOST_ENTRIES = 20_000
"""entries of an archive: the archive is refused."""
MOST_FOLDERS = 64
"""folders nested in an archive: the archive is refused."""
MOST_ARCHIVES = 3
"""archives nested in one another: further ones are not unpacked."""
MOST_UNPACKED = 100
"""times its size that an archive unpacks to: the archive is refused; text of profilers packs to a twentieth."""
ALWAYS_UNPACKED_BYTES = 256 << 20
"""bytes that a small archive may unpack to nevertheless: the archive is refused."""
LONGEST_HEADER_BYTES = 1 << 20
"""bytes of a name in a tar archive: the archive is refused; `tarfile` would read it into memory."""
CSV_ROWS_PER_BLOCK = 1_000
"""rows of CSV read at a time: the next block is read."""
LONGEST_CELL_BYTES = 16 << 20
"""bytes of a cell of CSV: the file is refused, with its line."""
LONGEST_CSV_LINE_BYTES = 2 * LONGEST_CELL_BYTES
"""bytes of a line of CSV: the file is refused, with its line."""
CSV_PIECE_BYTES = 256 << 10
"""bytes of CSV read at a time: the next piece is read."""
CSV_COLUMNS_BYTES = 1 << 20
"""bytes of CSV read at a time by columns: the next piece is read."""
WORTH_COLUMNS_BYTES = 4 << 20
"""bytes of a CSV file below which it is read row by row: loading the reader of columns would take longer than the
rest."""
ROWS_PER_BLOCK = 5_000
"""rows of another tool's database read at a time: the next block is read."""
ROWS_PER_FETCH = 16
"""rows in memory before their size is known: the size of the block is checked."""
BLOCK_BYTES = 16 << 20
"""bytes of such a block: the block ends with fewer rows."""
LONGEST_ROW_BYTES = 4 << 20
"""bytes of a row: the database is refused."""
OTHERS_BUSY_MS = 2_000
"""ms for another tool to finish writing: the database is refused, as it is in use."""
MOST_IMPORTING_PROCESSES = 8
"""processes that read results side by side: sources wait."""
MOST_NAMED = 3
"""names in a line that lists some: the rest is counted."""
BEGINNING_BYTES = 256 << 10
"""bytes of a file by which its format is recognised: the rest is ignored."""
LARGEST_REPORT_BYTES = 256 << 20
"""bytes of a report: the file is refused."""
TIMELINE_PIECE_BYTES = 1 << 20
"""bytes of a timeline read at a time: the next piece is read."""
LONGEST_EVENT_BYTES = 64 << 20
"""bytes of an event: the file is no timeline, or damaged."""
LONGEST_OPENING_BYTES = 64 << 10
"""bytes before the events of a timeline: the file is no timeline."""
REMEMBERED_RESULTS = 64
"""folders of results that are recognised: a folder is looked at again."""
LARGEST_METADATA_BYTES = 64 << 10
"""bytes of a Profiler's metadata that are read: its labels are left out."""
MOST_LABELS = 64
"""labels of an imported session: the rest is left out."""
LONGEST_LABEL_KEY = 64
"""characters of the name of a label that is imported: the label is left out."""

# Reports, comparisons and exports
LONGEST_QUERY_S = 30.0
"""s for a query of a rule of `advise`: the rule is left out, and named."""
SHOWN_EVIDENCE = 5
"""rows of evidence below a finding: the rest is counted."""
MOST_EVIDENCE = 50
"""rows of evidence of a finding in a report: the rest is left out."""
MOST_LEDGER_ROWS = 200
"""entries of the ledger in a report: the rest is counted."""
MOST_INCIDENT_ROWS = 200
"""incidents in a report: the rest is counted."""
MOST_POINTS = 600
"""points of a chart in a report: the lowest and highest of each span of time stay."""
SPREAD_LAYERS = 15
"""layers whose spread a report draws: those with less time are left out."""
MOST_DRAWN_INFERENCES = 2_000
"""inferences of a model in a report's timeline: as many are chosen evenly, and the page says so."""
MOST_DRAWN_LAYERS = 12_000
"""layers of inferences in a report's timeline: fewer inferences show their layers, and the page says so."""
MOST_DRAWN_EVENTS = 3_000
"""calls, spans or subscriptions in a report's timeline: the longest stay, and the page says so."""
POINTS_OF_METRIC = 300
"""points of a metric in a report's timeline: the lowest and highest of each span of time stay, and the page says so."""
MOST_LACKING = 5
"""named layers that inferences lack: those lacking in fewer inferences are left out."""
MOST_COMPARED = 200
"""inferences of a run that are compared one by one: more are averaged in blocks."""
LARGEST_COUNTED = 1 << 20
"""ticks of a layer up to which times are counted, not sorted: they are sorted, which takes longer."""
SHOWN_LEVEL_CHANGES = 10
"""changes of level of layers, and of metrics, that a text or page lists: the rest is counted; `trend --json` has it."""
SHOWN_FLEET_LAYERS = 20
"""layers by time on the page of `fleet report`: `fleet stats` has the others."""
SHOWN_FLEET_BOARDS = 50
"""rows of boards on the page of `fleet report`: `fleet boards` and `fleet losses` have the others."""
SHOWN_LEDGER_ENTRIES = 10
"""entries of a reason that `ledger` lists: the rest is counted; `--all` lists them."""
MOST_INCOMPLETE_LINES = 3
"""incomplete sessions with a line of their own: they are named in one line."""
COMPLETION_S = 0.2
"""s for a busy database when a shell completes a word: no word is offered."""
MOST_WORDS = 500
"""words offered to a shell: the rest is left out."""
ROWS_PER_PIECE = 500
"""rows of JSON or CSV written at a time: the next piece is written."""
LONGEST_STEM_BYTES = 240
"""bytes of an exported file's name before its extension: the middle is cut, and a digest tells it from others."""
LARGEST_PART_BYTES = 100_000_000
"""bytes of a part of a trace, unless `--part-size` says otherwise: the next part begins."""
ROWS_PER_GROUP = 50_000
"""rows compressed together, at least: the next group begins."""
ROWS_PER_LAKE_GROUP = 200_000
"""rows compressed together in a lake: the next group begins."""
PIECES_PER_BATCH = 16
"""MiB of a session's database that a push holds: the next batch begins."""
LAKE_FILES_PER_DAY = 10
"""files of a table of a lake for a day: `doctor --lake` advises to join them."""
PUSH_ATTEMPTS = 20
"""commits of a push to a table of a lake while others commit there: the push fails, and continues when it is called
again."""
MOST_INTERNED_NAMES = 4096
"""names that a trace refers to by number: further names are written out."""
LATEST_US = 2.0**53
"""µs since 1970 or since the start that a trace shows: the time is left out, as a float holds no larger one exactly."""
MOST_HISTORY_NIGHTS = 30
"""sessions of a board in the history that a night and a report show: older ones are left out; `trend` has them."""
MOST_HISTORY_INFERENCES = 50_000
"""inferences of the sessions that a report reads for their history: older sessions are left out."""
MOST_PREDECESSORS = 60
"""nights before that a page names: older ones are left out."""
LONGEST_WAIT_S = 900.0
"""s between two attempts at a board: the wait is not doubled any more."""
LONGEST_OUTPUT_LINE_BYTES = 1 << 20
"""bytes of a line that a command of the night prints: the command fails."""
SYSTEMCTL_S = 60.0
"""s for `systemctl`: `nightly init --timer` ends with an error."""
REMEMBERED_NUMBERS = 4096
"""numbers, and numbers of a field, whose bytes in a Perfetto trace are known: they are made again."""
REMEMBERED_TAGS = 256
"""fields whose first bytes in a Perfetto trace are known: they are made again."""
REMEMBERED_DEALS = 4
"""pairs of numbers of inferences whose permutations are known: they are drawn again, the same."""
MOST_ROUNDS = 1_000
"""rounds of `ab`: the command line is refused."""
MOST_MARKDOWN_ROWS = 100
"""rows of a comparison that is written as Markdown: those with smaller changes are left out."""
MOST_NAMED_CHANGES = 20
"""changes named for which `--fail-if` fails: the rest is counted."""
WEBHOOK_S = 30.0
"""s for a webhook to take the night's summary: the night says that it was not sent."""
COMMAND_S = 120.0
"""s for the command that is notified of a night: it is ended, and the night says so."""
NIGHT_ENDING_S = 60.0
"""s for a command of the night to end after a request: it is killed."""
EXPORT_S = 1800.0
"""s for a command of the night that is no capture: it is ended, and its result is a problem of the night."""

# Other hosts: SSH, installing, running programs
CONNECT_S = 15.0
"""s for a login without questions, unless ConnectTimeout says otherwise: the board counts as unreachable."""
ALIVE_S = 5.0
"""s without a word, unless ServerAliveInterval says otherwise: the connection is probed."""
SSH_CLOSE_S = 3.0
"""s for a login to end: it is closed."""
MOST_PROMPTS = 3
"""questions for a password: the login fails."""
LONGEST_ANSWER_BYTES = 1024
"""bytes of an answer that is typed: the rest is left out."""
ALIVE_ANSWER_S = 10.0
"""s for the first bytes of a forwarded connection: it counts as silent."""
PROGRAM_END_S = 3.0
"""s for a program on the board to end: it is left alone."""
LARGEST_OUTPUT_BYTES = 16 << 20
"""bytes that a command on the board prints: the command fails, as a few were expected."""
PIPE_PIECE_BYTES = 64 << 10
"""bytes read of a pipe at a time: the next piece is read."""
SHOWN_LETTERS = 60
"""characters of a command in a message: the rest is left out."""
HOST_SILENCE_S = 60
"""s without a line of the host: a temporary daemon, or a keeper without a program, ends; a trial is undone."""
DAEMON_START_S = 60.0
"""s for a temporary daemon to start: the command ends with what it printed."""
DAEMON_END_S = 15.0
"""s for a temporary daemon to end: it is left alone; it ends by itself without a word of the host."""
SHOWN_OUTPUT_LINES = 20
"""lines of a temporary daemon's output that an error shows: the oldest is left out."""
DAEMON_ANSWER_S = 90.0
"""s for an installed daemon to answer: `deploy` restores the earlier state."""
MOST_DEATHS = 3
"""successive checks that find no running daemon: `deploy` restores the earlier state."""
DOWNLOAD_S = 60.0
"""s without a byte of a download: `bundle` ends with an error."""
TRIAL_S = 120.0
"""s for a new bundle to start on this host: `bundle` ends with an error."""
ABANDONED_S = 900
"""s without a line of the host while a program runs: the keeper ends the program, as nobody would empty the board's
disk."""
GRACE_S = 10
"""s for the program to end after a request: it is killed."""
MOST_OUTPUT_BYTES = 16 << 20
"""bytes of each stream of the program's output on the board: the oldest is left out."""
MOST_COMPLAINT_BYTES = 8192
"""bytes of what the keeper prints to its standard error: the oldest is left out."""
LARGEST_PROGRAM_BYTES = 8 << 20
"""bytes of a program that is read for its digest: the digest is unknown."""
GIT_S = 10.0
"""s for `git describe`: the session has no label of the revision."""
MOST_MODELS = 8
"""models in a project: no model is a label, as it is unknown which of them ran."""
LONGEST_MODEL_NAME = 50
"""characters of a model's name in a label: the rest is left out."""
ENDING_S = 2.0
"""s for the lost board of a demo to end: the demo ends with the error of the link, not of the board."""
DEMO_START_S = 30.0
"""s for the board of a demo to start: the demo ends with an error."""
DEMO_STOP_S = 10.0
"""s for the board of a demo to end: it is killed."""

# Checks, calibration, options
RESOLVE_S = 10.0
"""s for the name server: the check of the name fails."""
ASK_S = 10.0
"""s for another board to state its identity: the identity is unknown."""
LONGEST_CHECK_S = 10.0
"""s for SQLite to check the database: the check ends, and its result is unknown."""
MOST_OFFSET_US = 1_000_000
"""µs between the clocks of board and host: `doctor` warns."""
LARGEST_ACL_JSON_BYTES = 10 << 20
"""bytes of an acl.json: `doctor` says that the runtime reads no larger one."""
EXAMINED_INFERENCES = 200
"""inferences of a JOB that `doctor` examines: of more, as many are chosen evenly."""
MOST_PAIRS = 10_000_000
"""rows of a vendor's table times records of an inference: table and inference count as different; a model has thousands
of layers."""
LONGEST_TICKS = 7e6
"""ticks of a layer, 1 s at 700 MHz: a fit that needs more is refused."""
LARGEST_LAYER_BYTES = 2.0**32
"""bytes that a layer moves: a fit that needs more is refused."""
SCREEN_ROWS = 48
"""rows examined first: a candidate that fits these is examined on all rows."""
LARGEST_KIT_BYTES = 20 << 20
"""bytes of all files of a kit, before they are packed: further inferences are left out."""
KIT_INFERENCES = 20
"""inferences of a model and batch in a kit: further ones are left out."""
LARGEST_VENDOR_TABLE_BYTES = 16 << 20
"""bytes of a vendor's table: the file is refused."""
LARGEST_EXPONENT = 100
"""decimal digits before or behind the point of a number: the cell counts as no number."""
LARGEST_OPTIONS_BYTES = 1 << 20
"""bytes of a document with options: the document is refused."""
MOST_QUOTED_LINES = 100
"""lines of a quoted text in a shell script: the text counts as ending there."""
MOST_STEPS = 1000
"""steps from the first to the last of a list: a list with a gap is not corrected."""
MOST_DAYS = 20 * 365
"""days that a certificate may hold: `keys` refuses it."""
ROOM_BYTES = 8 << 20
"""bytes that must be free after a disk was full: the capture waits until they are."""
LARGEST_FITTED_RATIO = 1.05
"""of the whole that a fitted ratio comes to: a fit that needs more is refused."""
LARGEST_FRACTION = 1.5
"""of the whole that a ratio in a vendor's table comes to: the table's ratios count as percentages."""
LARGEST_DONE_BYTES = 1 << 16
"""bytes of a `.done` that `doctor` examines: the inference is left out."""
LARGEST_EXAMINED_LOG_BYTES = 16 << 20
"""bytes of a log that `doctor` examines: the inference is left out."""
MOST_NETS = 8
"""models of one inference whose numbering `doctor` examines: further ones are left out."""
MOST_NUMBERED_RECORDS = 10_000
"""records of a run whose numbering `doctor` examines: the run is left out."""
SHOWN_BEFORE = 12
"""characters shown before a mistake in a JSON text: the rest is left out."""
SHOWN_AFTER = 24
"""characters shown behind the mistake: the rest is left out."""
