"""A daemon on a board for as long as somebody holds on to it: brought, started, ended and removed over SSH."""

from __future__ import annotations

import asyncio
import secrets
import shlex
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from profagent.deploy.layout import Layout
from profagent.deploy.plan import chosen_version
from profagent.deploy.survey import survey
from profagent.errors import ProfagentError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from profagent.deploy.daemon_tree import DaemonTree
    from profagent.ssh.remote import Program, Remote

# The daemon ends when it has heard nothing for so long; this host speaks several times meanwhile.
LEASH_S = 20.0
_SPEAK_S = LEASH_S / 5
_START_S = 60.0
_END_S = 15.0
_KEPT_LINES = 20
_MIB = 1 << 20
_SERVING = b" serving "
# Standard input is held by the host. Its end before the word `go`, and later the daemon's, have the directory removed.
# What is still being unpacked into it ends with the link, too, so removing may need another try.
_KEEPER = """umask 077
mkdir {folder} && mkdir {folder}/tree || exit 1
echo made
read -r word
[ "$word" = go ] && {folder}/tree/bin/profagentd {arguments}
for _ in 1 2 3 4 5; do rm -rf {folder} && break; sleep 1; done
"""


@asynccontextmanager
async def temporary_daemon(
    remote: Remote,
    roots: Sequence[str],
    bundle: Path | None,
    tell: Callable[[str], None],
    settings: Sequence[str] = (),
) -> AsyncIterator[tuple[str, asyncio.Task[str]]]:
    """Serve these directories from a private directory of the board's /tmp, of which nothing is left at the end.

    The same becomes of it when the link is lost: at once where the board notices, else within LEASH_S. It runs with the
    bundle's Python, without one with the board's own, and with these arguments more. Given are where it listens there,
    and a task that ends with it, with its last words. Raises ProfagentError, UnreachableError.
    """
    folder = f"/tmp/profagentd-{secrets.token_hex(8)}"  # noqa: S108 - `mkdir` fails where somebody has made it
    tree = await _tree(remote, folder, bundle)
    async with remote.stream(_KEEPER.format(folder=folder, arguments=_arguments(folder, roots, settings))) as program:
        try:
            await _expect(program, b"made", remote.host)
            tell(
                f"bringing a daemon to {remote.host}: {tree.size_bytes / 1e6:.0f} MB, for as long as this command runs"
            )
            # Whoever unpacks late, when the directory is removed already, must not make it again.
            await remote.unpack(_pieces(tree), f"{folder}/tree", must_exist=True)
            program.stdin.write(b"go\n")
            async with asyncio.timeout(_START_S):
                line = await _expect(program, _SERVING, remote.host)
            async with _held(program) as ended:
                yield line.rpartition(_SERVING)[2].decode(), ended
        finally:
            await _let_go(program)


async def _tree(remote: Remote, folder: str, bundle: Path | None) -> DaemonTree:
    """What is brought there. Raises ProfagentError where it would not run, or has no room."""
    facts = await survey(remote, Layout.of(folder))
    tree = await chosen_version(facts, "bundled" if bundle else "system", bundle, None)
    if facts.free_bytes is not None and facts.free_bytes < tree.size_bytes:
        raise ProfagentError(
            f"{facts.place} of {remote.host} has {facts.free_bytes / _MIB:.1f} MiB free, and the temporary daemon takes"
            f" {tree.size_bytes / _MIB:.1f} MiB",
            hint="make room there, or have a daemon on another file system: `profagent deploy --prefix DIR`",
        )
    return tree


def _arguments(folder: str, roots: Sequence[str], settings: Sequence[str]) -> str:
    chosen = [argument for root in roots for argument in ("--root", root)]
    fixed = ("--listen", "127.0.0.1:0", "--state", f"{folder}/state", "--leash", f"{LEASH_S:g}")
    return shlex.join([*fixed, "--log-level", "warning", *chosen, *settings])


async def _pieces(tree: DaemonTree) -> AsyncIterator[bytes]:
    for piece in tree.tar():
        yield piece


async def _expect(program: Program, wanted: bytes, host: str) -> bytes:
    """The next line, which has to hold something; else what was complained of is raised."""
    line = await program.read_line()
    if wanted in line:
        return line.rstrip(b"\n")
    complaint = (await program.complaint()).strip().splitlines() or ["it ended without a word"]
    # The daemon says what is wrong, and below it what to do.
    reason = next((text for text in complaint if text.startswith("profagentd:")), complaint[-1])
    raise ProfagentError(
        f"the temporary daemon on {host} does not start: {reason}",
        hint="check --root, and that /tmp of the board has room and lets programs be run",
    )


@asynccontextmanager
async def _held(program: Program) -> AsyncIterator[asyncio.Task[str]]:
    """Speak to it now and then; the task ends when the program does."""
    speaking = asyncio.create_task(_speak(program))
    ended = asyncio.create_task(_last_words(program))
    try:
        yield ended
    finally:
        for task in (speaking, ended):
            task.cancel()
        await asyncio.wait([speaking, ended])


async def _speak(program: Program) -> None:
    while True:
        await asyncio.sleep(_SPEAK_S)
        with suppress(OSError):
            program.stdin.write(b"\n")


async def _last_words(program: Program) -> str:
    """What it complains of, the last lines, once it has ended."""
    lines = (await program.complaint()).strip().splitlines()
    return "\n".join(lines[-_KEPT_LINES:])


async def _let_go(program: Program) -> None:
    """Close its input, and wait until it has tidied up; a link that is lost takes no farewell."""
    with suppress(OSError):
        program.stdin.write_eof()
    with suppress(TimeoutError, UnreachableError):
        async with asyncio.timeout(_END_S):
            await program.rest()
            await program.wait()
