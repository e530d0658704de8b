"""Checks of the way to a board: its name, the link, what the daemon speaks, and that no two boards say they are one."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from profagent.doctor.daemon_settings import given_at_start
from profagent.doctor.finding import bad, good, unknown
from profagent.link.messages import PROTOCOL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.doctor.finding import Finding
    from profagent.link.messages import Board
    from profagent.link.translate import DaemonFacts


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a host's name leads to, or why to nothing; `error` is empty when it leads somewhere."""

    host: str
    addresses: tuple[str, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """A board of boards.toml, or one that was named: what identity it has there, and which one answers, if any."""

    name: str
    address: str
    written: str = ""
    answered: str = ""


def name_resolution(resolved: Resolved) -> Finding:
    """The board's name must lead to an address."""
    if resolved.error:
        return bad(
            "name",
            f"{resolved.host}: {resolved.error}",
            f"getent hosts {resolved.host}; or name the board by its IP address: profagent boards add NAME ADDRESS",
        )
    shown = ", ".join(resolved.addresses)
    return good(
        "name", f"{resolved.host} is {shown}" if resolved.addresses != (resolved.host,) else f"{shown} is an address"
    )


def link(address: str, error: str, hint: str) -> Finding:
    """The daemon must answer; `error` is empty when it did."""
    return bad("link", error, hint) if error else good("link", f"profagentd answers at {address}")


def daemon_version(board: Board, own_version: str) -> Finding:
    """Daemon and host should be of one version; another minor version works."""
    spoken = ".".join(map(str, board.protocol))
    told = f"profagentd {board.daemon_version} speaks protocol {spoken}; this is profagent {own_version}, protocol " + (
        ".".join(map(str, PROTOCOL))
    )
    if board.protocol[0] != PROTOCOL[0]:
        return bad("daemon", told, "install the same version on both sides")
    if board.daemon_version != own_version:
        return unknown(
            "daemon", f"{told}: versions that differ were not tried together", "install the same on both sides"
        )
    return good("daemon", told)


def listener(board: Board, daemon: DaemonFacts | None) -> Finding:
    """Nobody who is not known may do anything on the board."""
    if board.insecure:
        return bad(
            "listener",
            "the daemon is insecure: whoever reaches it may do anything",
            "profagent keys issue board NAME --address ADDRESS (docs/reference/security.md); "
            + given_at_start(daemon, "name these files in place of insecure", "these files in place of --insecure"),
        )
    return good("listener", "not open to others: it has TLS, or is not reached from outside")


def identities(boards: Sequence[Known]) -> Iterator[Finding]:
    """Boards that were made from one image have one identity, and cannot be told apart."""
    holders: dict[str, dict[str, str]] = defaultdict(dict)
    for board in boards:
        if identity := board.answered or board.written:
            holders[identity].setdefault(board.address, board.name)
    doubles = {identity: list(names.values()) for identity, names in holders.items() if len(names) > 1}
    for identity, names in doubles.items():
        yield bad(
            "identity",
            f"{' and '.join(names)} have one identity: {identity}",
            "if they are two boards, on one of them: cat /proc/sys/kernel/random/uuid > /etc/profagent/board-id, and"
            " restart profagentd; if they are one: profagent boards remove NAME",
        )
    for board in boards:
        if board.written and board.answered and board.written != board.answered:
            yield bad(
                "identity",
                f"{board.name} is {board.written} in boards.toml, and {board.answered} answers at {board.address}",
                "see which board has the address now, and put it right in ~/.config/profagent/boards.toml",
            )
    nameless = [board.name for board in boards if not board.answered and not board.written]
    if nameless:
        yield unknown("identity", f"{', '.join(nameless)}: neither boards.toml nor the board tells an identity")
    if not doubles and holders:
        yield good("identity", f"boards with an identity of their own: {len(holders)}")
