"""What asyncssh and the system raise, as profagent's own errors, each with what to do next."""

from __future__ import annotations

import errno
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# asyncssh's words for a connection that has ended, in place of the server's for a channel that it does not open.
_CLOSED = "SSH connection closed"
_LATE = "no answer in time"


@contextmanager
def connecting(options: asyncssh.SSHClientConnectionOptions, is_reached: Callable[[], bool]) -> Iterator[None]:
    """What goes wrong up to the login, on jump hosts as long as the board is not reached."""
    where = f"{options.host} port {options.port}"
    try:
        yield
    except ProfagentError:
        raise
    except RecursionError as error:
        raise UsageError(
            f"{where}: ProxyJump goes in a circle",
            hint="give the jump host a Host of its own with ProxyJump none in ~/.ssh/config",
        ) from error
    except (asyncssh.Error, OSError) as error:
        is_refused = isinstance(error, asyncssh.PermissionDenied | asyncssh.HostKeyNotVerifiable)
        if options.tunnel and not is_reached():
            raise (RefusedError if is_refused else UnreachableError)(
                f"the jump host {options.tunnel} does not lead to {where}: {str(error) or _LATE}",
                hint="log in there with `ssh` first: it must be known, and let in without a password",
            ) from error
        if is_refused:
            raise RefusedError(
                f"{where} does not let {options.username} in: no key or password was accepted",
                hint=f"give it your public key with `ssh-copy-id {options.username}@{options.orig_host}`, name another"
                " with IdentityFile in ~/.ssh/config, or run at a terminal, where a password can be asked for",
            ) from error
        why, hint = _explained(options, where, error)
        raise UnreachableError(why, hint=hint) from error


def _explained(
    options: asyncssh.SSHClientConnectionOptions, where: str, error: asyncssh.Error | OSError
) -> tuple[str, str]:
    """Why a board is not reached, and what to do."""
    if options.proxy_command:
        return f"the ProxyCommand for {where} leads to no login: {str(error) or _LATE}", "run it by hand to see more"
    if isinstance(error, TimeoutError):
        hint = "check its address, the firewall, and that it is on; ConnectTimeout in ~/.ssh/config waits longer"
        return f"{where} does not answer in time", hint
    if isinstance(error, asyncssh.Error):
        hint = "check that an SSH server listens there, its log on the board, and with `ssh -v` what it wants"
        return f"{where} ended the connection before the login: {error.reason}", hint
    if isinstance(error, socket.gaierror):
        hint = (
            "`profagent boards` lists the boards that have a name; check the spelling, /etc/hosts and the name server"
        )
        return f"the name {options.host} does not resolve: {error.strerror}", f"{hint}, or use the board's IP address"
    if error.errno == errno.ECONNREFUSED or isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {where}", "start the board's SSH server, or name its port: ssh://USER@HOST:PORT"
    hint = "check the address, the cable, this host's routes, and that the board is on"
    return f"cannot connect to {where}: {error.strerror or error}", hint


@contextmanager
def connected(where: str) -> Iterator[None]:
    """What goes wrong on a connection that stands."""
    try:
        yield
    except asyncssh.ChannelOpenError as error:
        if error.reason == _CLOSED:
            raise lost(where, error) from error
        raise ProfagentError(
            f"the SSH server of {where} does not open what was asked for: {error.reason}",
            hint="check that something listens there, and the server's MaxSessions, AllowTcpForwarding, ForceCommand",
        ) from error
    except (asyncssh.Error, OSError) as error:
        raise lost(where, error) from error


def lost(where: str, error: BaseException) -> UnreachableError:
    """The connection has ended before its time."""
    why = str(error).rstrip(".") or "it has ended"
    return UnreachableError(
        f"the SSH connection to {where} is lost: {why}", hint="check the link and the board, then run the command again"
    )
