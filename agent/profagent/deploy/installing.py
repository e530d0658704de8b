"""Having `setup` change what is deployed on a board, and asking the daemon who it is before that is kept."""

from __future__ import annotations

import asyncio
import json
import shlex
from contextlib import asynccontextmanager, suppress
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from profagent.deploy.setup import LOST_S
from profagent.errors import ProfagentError, RefusedError, UnreachableError
from profagent.files import finished
from profagent.link.channel import connected
from profagent.link.credentials import Access, KnownBoard

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from pathlib import Path

    from profagent.deploy.settings import BoardSettings
    from profagent.deploy.survey import BoardFacts
    from profagent.deploy.units import Layout, Service
    from profagent.link.boards_file import BoardEntry
    from profagent.link.messages import Board
    from profagent.ssh.remote import Program, Remote

__all__ = ["answered", "changed", "is_active", "tried_out"]

# An interpreter on a small board takes its time.
LIMIT_S = 90.0
_BETWEEN_S = 1.0
# One that ended once may have been started again meanwhile.
DEAD = 3
_BEAT_S = LOST_S / 12


async def changed(remote: Remote, facts: BoardFacts, layout: Layout, request: Mapping[str, Any]) -> None:
    """Have `setup` do something that needs no second word. Raises ProfagentError, UnreachableError."""
    async with _asked(remote, facts, layout, request) as program:
        await _said(program, facts)


async def tried_out(
    remote: Remote,
    facts: BoardFacts,
    layout: Layout,
    request: Mapping[str, Any],
    ask: Callable[[], Awaitable[Board]],
) -> Board:
    """Have a version run, and answer `ask`; else what was there before is there, and runs, again.

    So it is when this is cancelled, and when the link is lost: the board does it by itself.
    """
    async with _asked(remote, facts, layout, request) as program:
        version = request["version"]
        try:
            answer = await _said(program, facts)
            if answer["is"] == "back":
                error = ProfagentError(answer["why"], hint="see its log there")
                raise _not_usable(version, facts, error, answer["log"])
            board = await ask()
            program.stdin.write(b"keep\n")
            await finished(asyncio.create_task(_said(program, facts)))
        except asyncio.CancelledError:
            await finished(asyncio.create_task(_given_up(program)))
            raise
        except (UnreachableError, RefusedError) as error:
            raise await _failed(version, facts, program, error) from error
    return board


async def _failed(version: str, facts: BoardFacts, program: Program, error: ProfagentError) -> ProfagentError:
    """What is said of a version that was taken back."""
    try:
        log = await _given_up(program)
    except UnreachableError as lost:
        before = f"{facts.current} runs again" if facts.current else "nothing runs there"
        return UnreachableError(
            f"{lost}; {facts.hostname} leads back by itself within {LOST_S} s: {before} then", hint=lost.hint
        )
    return _not_usable(version, facts, error, log)


def _not_usable(version: str, facts: BoardFacts, error: ProfagentError, log: str) -> ProfagentError:
    before = f"{facts.current} runs again" if facts.current else "nothing runs there"
    said = _last_message(log)
    return type(error)(
        f"{version} was started and cannot be used: {error}; {before}"
        + (f"; its log ends with: {said}" if said else ""),
        hint=f"{error.hint}; where only SSH gets through, take --listen 127.0.0.1:50151",
    )


async def _given_up(program: Program) -> str:
    """Have what is on trial taken back; the end of the service's log. Raises UnreachableError."""
    with suppress(OSError):
        program.stdin.write(b"back\n")
    answer = json.loads(await program.read_line() or b"{}")
    await program.wait()
    return str(answer.get("log", ""))


@asynccontextmanager
async def _asked(
    remote: Remote, facts: BoardFacts, layout: Layout, request: Mapping[str, Any]
) -> AsyncIterator[Program]:
    """`setup`, which was given a request, and hears this host for as long as the context."""
    await remote.must(f"mkdir -p {layout.prefix}")
    await remote.put(files("profagent.deploy").joinpath("setup.py").read_bytes(), layout.setup)
    # A bundle has a Python of its own.
    tree = request.get("part") or layout.current
    system = shlex.quote(facts.python.path) if facts.python else "python3"
    command = f"python={tree}/bin/python; [ -x $python ] || python={system}; exec $python -I -B {layout.setup}"
    async with remote.stream(command) as program:
        program.stdin.write(json.dumps(request).encode() + b"\n")
        beating = asyncio.create_task(_beat(program))
        try:
            yield program
        finally:
            beating.cancel()
            await asyncio.wait([beating])


async def _beat(program: Program) -> None:
    while True:
        await asyncio.sleep(_BEAT_S)
        with suppress(OSError):
            program.stdin.write(b"\n")


async def _said(program: Program, facts: BoardFacts) -> Mapping[str, Any]:
    """The next answer. Raises ProfagentError for one that says why not, UnreachableError."""
    line = await program.read_line()
    if not line:
        complaint = (await program.complaint()).strip().splitlines() or ["it ended without a word"]
        await program.wait()
        raise ProfagentError(
            f"nothing can be changed on {facts.hostname}: {complaint[-1]}",
            hint="see that the file system can be written to, and that the board's Python runs",
        )
    answer: Mapping[str, Any] = json.loads(line)
    if answer["is"] == "failed":
        raise ProfagentError(f"{facts.hostname}: {answer['why']}", hint=answer["hint"])
    return answer


def _last_message(log: str) -> str:
    """A log's last line that is not indented, with what to do that stands below it."""
    lines = [line for line in log.splitlines() if line.strip()]
    begins = [number for number, line in enumerate(lines) if not line[0].isspace()]
    return ": ".join(line.strip() for line in lines[begins[-1] :]) if begins else ""


async def answered(remote: Remote, service: Service, settings: BoardSettings, entry: BoardEntry, keys: Path) -> Board:
    """Who answers: over mutual TLS, or through a tunnel where the daemon listens on the board alone.

    It is waited for as long as the board says that it runs. Raises RefusedError, UnreachableError.
    """
    if settings.has_tls:
        access = Access(keys, known={entry.name: entry.known})
        return await _described(remote, service, entry.name, access)
    async with remote.forward(settings.own_address) as local:
        access = Access(known={entry.name: KnownBoard(entry.name, local, entry.uuid)})
        return await _described(remote, service, entry.name, access)


async def is_active(remote: Remote, service: Service) -> bool:
    """Whether the board says that the service runs. Raises UnreachableError."""
    return (await remote.run(service.is_active)).status == 0


async def _described(remote: Remote, service: Service, name: str, access: Access) -> Board:
    until = asyncio.get_running_loop().time() + LIMIT_S
    found_dead = 0
    while True:
        try:
            async with connected(name, access) as channel:
                return await channel.describe()
        except RefusedError:
            raise
        except UnreachableError:
            found_dead = 0 if await is_active(remote, service) else found_dead + 1
            if found_dead == DEAD or asyncio.get_running_loop().time() > until:
                raise
        await asyncio.sleep(_BETWEEN_S)
