"""Checks of `doctor` and `options check`: what each finds, and what to do. No finding has a check without a row here.

The reference page is generated from this table. The text says when a check has its worst mark: ✗ for most, ? for those
that are never ✗.
"""

from __future__ import annotations

from collections.abc import Mapping

from profagent.codes import IssueCode, IssueFamily, Severity

_SET = "write it with `profagent aclconfig set` (--board BOARD for a file there), and start the program again"
_SEND = "send the evidence, because figures that depend on this fact are wrong: profagent kit -o evidence.tar.gz JOB"
_MEND = "mend it, then check it again"


def _check(code: str, text: str, remedy: str, severity: Severity = Severity.BAD) -> IssueCode:
    return IssueCode(IssueFamily.CHECK, code, severity, text, remedy, 1 if severity is Severity.BAD else 0)


def _doubt(code: str, text: str, remedy: str) -> IssueCode:
    return _check(code, text, remedy, Severity.UNKNOWN)


# By what is checked, in the order of the output.
CHECKS_OF: Mapping[str, tuple[IssueCode, ...]] = {
    "Host and board": (
        _check(
            "workspace",
            "the workspace cannot be written",
            "correct the folder's mode, or name another: `--workspace DIR`",
        ),
        _check(
            "database",
            "the database is damaged, or of another version",
            "make it again from the mirrors; labels, baselines and kept losses are lost with it",
        ),
        _check(
            "host-space",
            "less than 1 GB is free for the workspace",
            "make room, or name another workspace: `--workspace DIR`",
        ),
        _check(
            "certificate",
            "a certificate ends within 14 days, is not valid by one of the clocks, or a key is open to others",
            "issue another one with `profagent keys`, or set the clock that is wrong",
        ),
        _check(
            "identity",
            "two boards have the same identity, or another board answers",
            "give each board its own /etc/profagent/board-id, and correct boards.toml",
        ),
        _check(
            "name", "the board's name leads to no address", "name the board by its IP address: `profagent boards add`"
        ),
        _check("link", "the daemon does not answer", "check the address, the port, and that profagentd runs there"),
        _check(
            "daemon",
            "the daemon speaks another major version of the protocol",
            "install the same version on both sides",
        ),
        _check(
            "listener",
            "the daemon runs with `--insecure`",
            "issue a certificate with `profagent keys issue board`, and start the daemon with it",
        ),
        _check(
            "clock",
            "the board's clock is more than 1 s from this host's",
            "on the board, with this host's seconds: date -u -s @$(date +%s); for good: an NTP client",
        ),
        _check("npu-stack", "`/dev/svp_npu` is missing", "load the SDK's svp_npu driver, or use an image that has it"),
        _check("npu-tasks", "several programs profile at the same time", "end all but one of them"),
        _check(
            "npu-errors",
            "`/proc/umap/svp_npu` counts time-outs or errors (unverified), or cannot be read",
            "restart the board (reboot): nothing else helps after a time-out of the NPU",
        ),
        _check(
            "umask",
            "a program has a umask below 0027, so that others may read what is recorded",
            "run `umask 0027` in the shell before you start the program",
        ),
        _check(
            "root", "a root, or a JOB in it, cannot be read", "correct its mode, or give the daemon the right to read"
        ),
        _check(
            "path",
            "the path of a root has other characters than letters, digits and `_`",
            "choose an `output` in acl.json, and a root above it, with only letters, digits and _",
        ),
        _check(
            "space",
            "a root has less than 64 MB or no inodes free",
            "delete JOBs that are on the host, or have the daemon do it: `--retain delivered`",
        ),
        _doubt(
            "file-system",
            "a root is on a memory card (vfat, exfat)",
            "use another file system, such as ext4, if the board has one with room",
        ),
        _check("mounts", "a root is on NFS, or the vendor's `collect` left a mount", "unmount it on the board"),
        _doubt(
            "metrics",
            "the board lacks some metrics; it names them",
            "nothing, unless the board should have them: the other metrics are recorded",
        ),
        _check(
            "inotify",
            "the daemon has too few inotify watches",
            "on the board: `sysctl -w fs.inotify.max_user_watches=65536`",
        ),
    ),
    "An acl.json": (
        _check(
            "acl-json",
            "the acl.json is not JSON, or has a value that is not a string",
            "correct the file, then check it again: further faults show only then",
        ),
        _check(
            "acl-switch",
            "the switch is not `on`. ?: there is no `profiler`, which is right for programs that use the API",
            _SET,
        ),
        _check("acl-keys", "keys look like slips of the pen", "rename them"),
        _check("acl-items", "no item is switched on, or one has a wrong value", _SET),
        _check(
            "acl-interval",
            "the interval is not a number from 0 to 9999. ?: it is 0, so that only the first inference is recorded",
            _SET,
        ),
        _check(
            "acl-output", "the output directory is missing, is no directory, or lies below no root of the daemon", _SET
        ),
        _check("acl-dump", "`dump` is on beside `profiler`", "remove `dump` from the file while you profile"),
    ),
    "A lake": (
        _check("packages", "the versions of the packages that read a lake", "", Severity.INFO),
        _check("address", "the lake's folder does not exist", "mount or make it, and call this again"),
        _check("lake-space", "less than 1 GB is free for the lake", "make room: profagent fleet expire DATE"),
        _check(
            "commit",
            "of four commits of one version not exactly one succeeded, or its rows cannot be seen at once",
            "pushes would be lost: use a file system with hard links, or an object store",
        ),
        _check(
            "hard-links",
            "hard links cannot be made, as on SMB: two hosts may then overwrite each other's commits",
            "let no two hosts push at a time, or take another file system (NFS, not SMB) or a store",
        ),
        _check(
            "table",
            "a table of the lake cannot be opened, or has features that are not read here",
            "check address, permissions and credentials, and that no newer profagent wrote it",
        ),
        _doubt("tables", "the lake has no tables yet", "profagent push SESSION"),
        _doubt("files", "a table has many small files", "join them: `profagent fleet compact`"),
    ),
    "A JOB": (
        _check("job-data", "the JOB has no data", "correct what the line names, and run the program again"),
        _doubt(
            "job-sampling",
            "only the first inference of each model was recorded",
            'for every inference, in acl.json: "interval": "1"',
        ),
        _check(
            "job-clock",
            "no `info.json.0` has the NPU's clock, so times are not known",
            "copy the JOB directory whole: info.json.0 is in it",
        ),
    ),
    "Facts that nobody knows": (
        _check("tick-unit", "the unit of a tick is another one than profagent assumes", _SEND),
        _check("batch-number", "records of several pictures are numbered otherwise than profagent assumes", _SEND),
    ),
    "Profiling options": (
        _check("runtime", "the options that the runtime takes", "", Severity.INFO),
        _check("json", "the text is not JSON, or holds no object. ?: a key stands twice", _MEND),
        _check("toml", "the file is not TOML", "mend it"),
        _check("python", "the script is not Python", _MEND),
        _doubt(
            "script",
            "the script profiles, and has no options that can be checked",
            "check the file that has its options",
        ),
        _check("keys", "there is no option of this name", "take the name that was meant, or leave it out"),
        _check("values", "an option cannot have this value", "take one of the possible values, or leave it out"),
        _check("names", "an argument has no name", "name each argument"),
        _check("needed", "an argument is missing", "add it"),
        _check("switch", "profiling is not switched on", "set the switch to on"),
        _check("enabled", "options are set, and nothing switches profiling on", "switch it on beside the options"),
        _doubt("output", "there is no output directory", "name a directory as output"),
        _doubt("training", "tasks are recorded without the training trace", "set training_trace to on for a training"),
        _doubt("points", "fp_point and bp_point do not fit training_trace", "set all three, or none"),
        _doubt("tasks", "times of operators are off, or switched twice", "take task_time alone"),
        _check("excludes", "options exclude each other", "record them in another run"),
        _doubt("llc", "llc_profiling works only beside another option", "add sys_hardware_mem_freq"),
        _check("levels", "the level does not record what another option wants", "take a level that does"),
        _check("other-use", "an option is meant for another device or another use", "leave it out"),
        _check("activities", "an activity is missing that another option needs", "name the activity"),
        _check(
            "schedule", "options do not fit a schedule", "leave out the option that the line names, or analyse later"
        ),
        _check("both-ways", "profiling is controlled in two ways at the same time", "take one of them"),
        _doubt("steps", "the schedule makes the first step slow, or never ends", "add warm-up, and a number of cycles"),
        _check("session", "a TensorFlow session lacks the settings that profiling wants", "set them as the line says"),
        _check(
            "export", "the export type does not hold what another option records", "take the export type Db, or both"
        ),
        _check("marks", "options of marks have no effect together", "set mstx to True, and name domains once"),
        _doubt("flops", "with_flops is recorded, and no analysis shows it", "leave it out"),
        _check("ranks", "ranks are chosen, and none is named", "name the ranks in rank_list"),
    ),
}
CHECKS: Mapping[str, IssueCode] = {check.code: check for of in CHECKS_OF.values() for check in of}
