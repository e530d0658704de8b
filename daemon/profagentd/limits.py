"""The bounds of the daemon: the most that there may be of something, and the longest wait for something.

Each text begins with the unit, and says behind the colon what happens beyond the bound. `make docs` prints it into
docs/reference/limits.md, as it does with the agent's module of this name.
"""

from __future__ import annotations

# Hosts and their connections
CONNECTIONS = 128
"""connections: the oldest one that has not finished its handshake gives way; without one the new one is closed."""
CONNECTIONS_OF_AN_ADDRESS = 64
"""connections from an address, or from an IPv6 network: as above."""
SILENT_S = 10.0
"""s for a new connection to send its first bytes: it is closed."""
BURST_BYTES = 256 << 10
"""bytes that a host sends at once: it is read more slowly."""
BYTES_PER_S = 1 << 20
"""bytes that a host sends in a second: it is read more slowly."""
BYTES_PER_S_OF_ALL = 4 << 20
"""bytes that all throttled hosts send in a second: they share them."""
FLOOD_S = 15.0
"""s during which a host keeps sending more than that: its connection is closed."""
WAITING_BYTES = 64 << 10
"""bytes of a host that wait in the kernel: the host waits."""
FRONT_READ_BYTES = 64 << 10
"""bytes read of a connection at a time: the next piece is read."""
BACKLOG = 128
"""connections that wait to be accepted: the kernel refuses more."""
ACCEPTED_TOGETHER = 32
"""connections accepted before anything else is done: other work comes first."""
HANDSHAKE_MS = 10_000
"""ms for a connection's handshake: it is closed."""
KEEPALIVE_TIMEOUT_MS = 4_000
"""ms for the answer to a keepalive ping: the connection counts as lost."""
MIN_PING_INTERVAL_MS = 5_000
"""ms between two pings of a host, at least: a host that pings more often is disconnected."""
MAX_CLIENT_MESSAGE_BYTES = 256 * 1024
"""bytes of a host's message; 1,000 entries take 50 KB: the call ends."""
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""bytes of a message of the daemon: the call ends."""
WINDOW_BYTES = 64 * 1024
"""bytes of a stream that are under way to the daemon: the host waits."""
READ_BYTES = 1024
"""bytes of a connection's first read buffer: the buffer grows."""
MAX_READ_BYTES = 16 * 1024
"""bytes to which that buffer grows: the rest is read next."""
STREAMS = 64
"""streams: the next one is refused."""
STREAMS_OF_A_CLIENT = 8
"""streams of a client: the next one is refused."""
STREAMS_OF_A_CONNECTION = 32
"""calls of a connection at a time: the next one waits."""
STOP_S = 2.0
"""s for clients to leave when the daemon ends: they are disconnected."""
DRAIN_S = 5.0
"""s at the daemon's end to send what is left: the rest stays on the board."""
SILENCE_S = 12.0
"""s without a message of a client, three heartbeats: its stream ends."""
LEAVE_S = 2.0
"""s for a client to leave after the Goodbye: its stream ends."""
MAX_CLIENT_NAME = 256
"""characters of a client's name: the stream is refused."""
LARGEST_HELD = 2**63 - 1
"""as the generation or offset that a client names: the stream is refused, as no file can be that long."""
WARNED_CONNECTIONS = 256
"""connections that the log has warned of: all are forgotten, and may be warned of again."""

# Following logs
COMMON_LOGS = 3072
"""logs of all streams that are announced and not over: further logs wait for room."""
RESERVED_LOGS = 64
"""logs for which a stream has room in any case: further logs wait for room."""
IDLE_S = 1.0
"""s without a change of a log: its handle is released when others wait."""
CHUNK_BYTES = 256 * 1024
"""bytes read of a log in a turn, and sent in one message: the rest is read in the next turn."""
LARGE_READS = 4
"""streams that read as much as that: with more streams, each reads less."""
PIECE_BYTES = 64 * 1024
"""bytes read then of a log in a turn: the rest is read in the next turn."""
TURN_LOGS = 128
"""logs of a stream that are read in one turn: the others are read in the next one."""
COMPARE_BYTES = 4 * 1024 * 1024
"""bytes of a log that are compared with the host's in one turn: other logs are read first."""
PAGE_ENTRIES = 1000
"""logs announced in one message: the next message begins."""
NAMES_LIMIT = 10_000
"""changed names of a JOB that are remembered: the JOB's directories are walked again."""
ODD_LIMIT = 1000
"""names of a JOB that are no regular files, each reported as a loss: further ones are not reported."""
NAMES_OF_ONE = 8
"""logs that may be announced with one changed name: fewer names are looked up at a time."""
PARENTS_LIMIT = 4096
"""directories watched because JOBs may appear in them: roots are searched more often instead."""
READY_S = 5.0
"""s that clients wait for the first search for JOBs: they are answered without it."""
LOOKING_SHARE = 0.1
"""of a core for scanning directories: the next scan waits."""
SEARCH_SHARE = 0.05
"""of the time for searching JOBs: the next search waits."""
KNOW_ALL_S = 2.0
"""s that a client waits for the states of new JOBs: it is answered with the states so far."""
SURVEY_NAMES = 2000
"""names examined in one step of a survey: the next step follows."""
SURVEY_SHARE = 0.1
"""of the time for surveys of a JOB: the next survey waits."""
MEASURE_S = 4.0
"""s for counting a JOB's files: the answer says that there are more."""
ROOT_THREADS = 2
"""threads for a root's files: calls wait."""
HANGING_S = 5.0
"""s for a root to answer: it counts as hanging."""
FILE_THREADS = 4
"""threads for other files: calls wait."""
MOST_FREE_BYTES = 4 << 20
"""bytes of free memory that the daemon keeps: more goes back to the kernel."""
REMEMBERED_COLLECTIONS = 256
"""names of directories whose source is known: the name is matched again."""
REMEMBERED_NAMES = 512
"""names of files that are parsed: a name is parsed again."""
MOST_ENDS = 16
"""`.done` files read ahead with their data: further ones are read again."""
MAX_DEPTH = 16
"""levels of directories below a root: the setting is refused."""
MAX_CONSUMERS = 16
"""consumers: the setting is refused."""
MAX_HZ = 20
"""samples of metrics in a second: the setting is refused."""
MAX_SUBSCRIPTIONS = 64
"""names of metrics: the setting is refused."""
NAMES_TOGETHER = 512
"""names of a stream for which there should be room before they are looked up: they wait."""
ROOM_S = 0.25
"""s that names of a stream wait for that room: fewer are looked up."""

# Retention and losses
JOBS_LIMIT = 1000
"""JOBs with saved deliveries: those of the JOBs written to longest ago are forgotten."""
SPARE_RECORDS = 10_000
"""records in a JOB's file of deliveries, beyond two for each log: the file is written anew."""
LOGS_LIMIT = 10_000
"""logs of a JOB considered for deletion at a time: the oldest are considered first."""
REAPING_SHARE = 0.1
"""of the time for scanning and deleting: the next scan waits."""
LOSSES_LIMIT = 1000
"""losses that are recorded: the oldest is forgotten."""
SEGMENTS_LIMIT = 10_000
"""segments of spools known to be delivered: the oldest is forgotten, and counts as not delivered."""

# Spools and metrics
CAP_BYTES = 64 << 20
"""bytes of a kind's spools, unless a setting says otherwise: the oldest segment goes, as a loss if it was not
delivered."""
SEGMENT_BYTES = 4 << 20
"""bytes of a segment: the next segment begins."""
SEGMENTS_OF_CAP = 4
"""segments that a full spool has at least: segments are made smaller."""
MOST_COLLECTIONS = 256
"""collections of a kind's spools: the oldest ended segments go."""
PIPE_BYTES = 1 << 20
"""bytes that a program has written and the daemon has not read: further records are lost, and counted."""
INTAKE_READ_BYTES = 1 << 20
"""bytes read of a pipe at a time: the rest is read next."""
PIECE_RECORDS = 256
"""records written to a segment at a time: the rest is written next."""
REMEMBERED_WRITERS = 256
"""writers of marks whose last refused mark is remembered: a loss at the end of further ones stays unknown."""
MOST_WAITING = 16
"""connections of programs that have sent nothing: the oldest is closed."""
SWEEP_S = 2.0
"""s for a collector of metrics to return: it counts as hanging."""
MOST_PASSED = 64
"""pipes that programs have passed: the next one is refused."""
MOST_PASSED_OF_USER = 16
"""pipes of a user: the next one is refused."""
MOST_NAMES = 16
"""names of spools that programs gave with a pipe: one without a pipe gives way, or the pipe is refused."""
MOST_NAMES_OF_USER = 8
"""names of spools of a user: as above."""
NAMES_PER_S = 1 / 15
"""new names in a second beyond those: the pipe is refused."""
NAMES_PER_S_OF_USER = 1 / 60
"""new names of a user in a second beyond those: the pipe is refused."""
INTAKE_BURST_BYTES = 16 << 20
"""bytes that a program writes at once: more is lost, and counted."""
INTAKE_BYTES_PER_S = 4 << 20
"""bytes that a program writes in a second: more is lost, and counted."""

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
