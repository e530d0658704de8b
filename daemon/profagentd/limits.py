"""The bounds of the daemon: how much of something there may be, and for how long something is waited for.

Form and page are those of the agent's module of this name.
"""

from __future__ import annotations

# Hosts and their connections
CONNECTIONS = 128
"""connections: the oldest that has not said who it is gives way; else the new one is closed."""
CONNECTIONS_OF_AN_ADDRESS = 64
"""connections from an address, or a network of IPv6: the same."""
SILENT_S = 10.0
"""s for a new connection to say anything: it is closed."""
BURST_BYTES = 256 << 10
"""bytes that a host says at once: it is read more slowly."""
BYTES_PER_S = 1 << 20
"""bytes that a host says in a second: it is read more slowly."""
BYTES_PER_S_OF_ALL = 4 << 20
"""bytes that all hosts that are slowed down say in a second: they share them."""
FLOOD_S = 15.0
"""s during which a host wants to say more: its connection is closed."""
WAITING_BYTES = 64 << 10
"""bytes of a host that wait in the kernel: the host waits."""
FRONT_READ_BYTES = 64 << 10
"""bytes read of a connection at a time: the next piece is read."""
BACKLOG = 128
"""connections that wait to be accepted: the kernel refuses more."""
ACCEPTED_TOGETHER = 32
"""connections accepted before anything else is done: the others are served first."""
HANDSHAKE_MS = 10_000
"""ms for a connection to say what it speaks: it is closed."""
KEEPALIVE_TIMEOUT_MS = 4_000
"""ms for the answer to a probe: the connection counts as lost."""
MIN_PING_INTERVAL_MS = 5_000
"""ms between two probes of a host, at least: a host that probes more often is cut off."""
MAX_CLIENT_MESSAGE_BYTES = 256 * 1024
"""bytes of a host's message; 1,000 entries take 50 KB: the call ends."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""bytes of a message of the daemon: the call ends."""
WINDOW_BYTES = 64 * 1024
"""bytes of a stream that are under way to the daemon: the host waits."""
READ_BYTES = 1024
"""bytes of the buffer that a connection has for what comes next: it grows."""
MAX_READ_BYTES = 16 * 1024
"""bytes to which it grows: the next piece is read."""
STREAMS = 64
"""streams: the next one is refused."""
STREAMS_OF_A_CLIENT = 8
"""streams of a client: the next one is refused."""
STREAMS_OF_A_CONNECTION = 32
"""calls of a connection at a time: the next one waits."""
STOP_S = 2.0
"""s for clients to leave when the daemon ends: they are cut off."""
DRAIN_S = 5.0
"""s at the daemon's end to send what there is: the rest stays on the board."""
SILENCE_S = 12.0
"""s without a word of a client, three heartbeats: its stream ends."""
LEAVE_S = 2.0
"""s in which a client is heard after the goodbye: its stream ends."""
MAX_CLIENT_NAME = 256
"""characters of a client's name: the stream is refused."""
LARGEST_HELD = 2**63 - 1
"""as the generation or offset that a client names: the stream is refused; the wire's numbers have one bit more to count
on."""
WARNED_CONNECTIONS = 256
"""connections that the log has warned of: all are forgotten, and may be warned of again."""

# Following logs
COMMON_LOGS = 3072
"""logs of all streams that are announced and not over: the next ones wait for a place."""
SURE_LOGS = 64
"""logs of a stream that have a place nevertheless: the next ones wait for a place."""
IDLE_S = 1.0
"""s without a change of a log: it gives way when others wait."""
CHUNK_BYTES = 256 * 1024
"""bytes read of a log in its turn, and sent in one message: the rest has the next turn."""
LARGE_READS = 4
"""streams that read as much: with more, each reads less."""
PIECE_BYTES = 64 * 1024
"""bytes read then of a log in its turn: the rest has the next turn."""
TURN_LOGS = 128
"""logs of a stream that have their turn in one go: the others have the next one."""
COMPARE_BYTES = 4 * 1024 * 1024
"""bytes of a log compared with what the host has, in one go: other logs have their turn first."""
PAGE_ENTRIES = 1000
"""logs announced in one message: the next message begins."""
NAMES_LIMIT = 10_000
"""names of a JOB that are remembered: the JOB's directories are walked again."""
ODD_LIMIT = 1000
"""names of a stream that are no files, and are told as a loss: further ones are not told."""
NAMES_OF_ONE = 8
"""logs announced with one that others must precede: fewer names are looked at in one go."""
PARENTS_LIMIT = 4096
"""directories watched only because JOBs may appear in them: roots are searched more often, as events do not tell of
all."""
READY_S = 5.0
"""s that clients wait for the first search for JOBs: they are answered without it."""
LOOKING_SHARE = 0.1
"""of a core for looking at logs: the next look waits."""
SEARCH_SHARE = 0.05
"""of the time for searching JOBs: the next search waits."""
KNOW_ALL_S = 2.0
"""s that a client waits for the states of JOBs that were just found: it is answered without them."""
SURVEY_NAMES = 2000
"""names looked at in one go of a survey: the rest has the next go."""
SURVEY_SHARE = 0.1
"""of the time for surveys of a JOB: the next survey waits."""
MEASURE_S = 4.0
"""s for counting a JOB's files: the answer says that there is more."""
ROOT_THREADS = 2
"""threads for a root's files: work waits."""
HANGING_S = 5.0
"""s for a root to answer: it counts as hanging."""
FILE_THREADS = 4
"""threads for other files: work waits."""
KEPT_BYTES = 4 << 20
"""bytes of free memory that the daemon keeps: they go back to the kernel."""
REMEMBERED_COLLECTIONS = 256
"""names of directories that are known to be collections or none: a name is looked at again."""
REMEMBERED_NAMES = 512
"""names of files that are parsed: a name is parsed again."""
MOST_ENDS = 16
"""ends of files that were read before they were asked for: further ones are read again."""
MAX_DEPTH = 16
"""levels of directories below a root: the setting is refused."""
MAX_CONSUMERS = 16
"""consumers: the setting is refused."""
MAX_HZ = 20
"""samples of metrics in a second: the setting is refused."""
MAX_SUBSCRIPTIONS = 64
"""names of metrics: the setting is refused."""
NAMES_TOGETHER = 512
"""names of a stream for which there should be room: they wait to be looked at together."""
ROOM_S = 0.25
"""s that names of a stream wait for such room: fewer are looked at."""

# Retention and losses
JOBS_LIMIT = 1000
"""JOBs of which is known what was delivered: those written to earliest are forgotten, as others have removed them."""
SPARE_RECORDS = 10_000
"""records in the file of a JOB's deliveries, beyond two for each log: the file is written anew."""
LOGS_LIMIT = 10_000
"""logs of a JOB weighed in one go: the oldest are weighed first."""
REAPING_SHARE = 0.1
"""of the time for looking and deleting: the next look waits."""
LOSSES_LIMIT = 1000
"""losses that are kept: the oldest is forgotten."""
SEGMENTS_LIMIT = 10_000
"""segments of spools known to be delivered: the oldest is forgotten, and counts as not delivered."""

# Spools and metrics
CAP_BYTES = 64 << 20
"""bytes of a spool, unless a setting says otherwise: the oldest segment goes; what was not delivered is a loss."""
SEGMENT_BYTES = 4 << 20
"""bytes of a segment: the next segment begins."""
SEGMENTS_OF_CAP = 4
"""segments that a full spool has at least: segments are smaller."""
MOST_COLLECTIONS = 256
"""collections of a spool: the oldest that has ended goes."""
PIPE_BYTES = 1 << 20
"""bytes that a program has written and the daemon has not read: the program's records are lost, and counted."""
INTAKE_READ_BYTES = 1 << 20
"""bytes read of a pipe at a time: the next piece is read."""
PIECE_RECORDS = 256
"""records written to a segment together: the next piece is written."""
MOST_KEPT = 256
"""programs whose last mark that was not taken is known: a loss at the end of further ones is not known."""
MOST_WAITING = 16
"""connections of programs that have sent nothing: the oldest is closed."""
SWEEP_S = 2.0
"""s for a collector of metrics to answer: it counts as hanging."""
MOST_PASSED = 64
"""pipes that programs have passed: the next one is refused."""
MOST_PASSED_OF_USER = 16
"""pipes of a user: the next one is refused."""
MOST_NAMES = 16
"""spools of names that programs pass with a pipe: one that no pipe fills gives way, or the pipe is refused."""
MOST_NAMES_OF_USER = 8
"""spools of names of a user: the same."""
NAMES_PER_S = 1 / 15
"""new names in a second beyond those: the pipe is refused."""
NAMES_PER_S_OF_USER = 1 / 60
"""new names of a user in a second beyond those: the pipe is refused."""
INTAKE_BURST_BYTES = 16 << 20
"""bytes that a program writes at once: what is more is lost, and counted."""
INTAKE_BYTES_PER_S = 4 << 20
"""bytes that a program writes in a second: what is more is lost, and counted."""

# What `doctor` and `collect` see
EXAMINED_S = 3.0
"""s for a source to give its facts: the answer says that it did not."""
EXAMINED_ENTRIES = 16
"""modules, processes, JOBs or directories that cannot be read, each: the rest is left out."""
EXAMINED_MOUNTS = 32
"""mounts: the rest is left out."""
NODE_BYTES = 8 << 10
"""bytes of a node below /proc/umap: the rest is left out."""
CERTIFICATE_BYTES = 64 << 10
"""bytes of a certificate: the rest is left out."""
EXAMINED_TEXT_BYTES = 256
"""bytes of a text: the rest is left out."""
EXAMINED_ACL_JSON = 16
"""acl.json files: the rest is left out."""
EXAMINED_ACL_JSON_BYTES = 64 << 10
"""bytes of each of them: the rest is left out."""
LARGEST_ACL_JSON_BYTES = 1 << 20
"""bytes of an acl.json: the file is passed over; a real one has a few hundred."""
MOST_ACL_JSON = 64
"""acl.json files that patterns may name: the rest is passed over."""
