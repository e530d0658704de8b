"""What asyncssh and the system raise, as profagent's own errors, each with what to do next."""

from __future__ import annotations

import errno
import os
import shlex
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError, RefusedError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# asyncssh's words for a connection that has ended, in place of the server's for a channel that it does not open.
_CLOSED = "SSH connection closed"
_TOO_MANY = "too many authentication failures"
_LATE = "no answer in time"
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


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
            f"{where}: more jump hosts than can be",
            hint="ProxyJump goes in a circle: give the jump host a Host of its own with ProxyJump none",
        ) from error
    except asyncssh.ChannelOpenError as error:
        raise UnreachableError(
            f"the jump host cannot reach {where}: {error.reason}",
            hint="check ProxyJump in ~/.ssh/config, and that the board is on in that network",
        ) from error
    except (asyncssh.Error, OSError) as error:
        if options.tunnel and not is_reached():
            raise _jump_failed(options, error) from error
        raise _not_reached(options, error) from error


def _jump_failed(options: asyncssh.SSHClientConnectionOptions, error: asyncssh.Error | OSError) -> ProfagentError:
    is_refused = isinstance(error, asyncssh.PermissionDenied | asyncssh.HostKeyNotVerifiable)
    return (RefusedError if is_refused else UnreachableError)(
        f"the jump host {options.tunnel} does not lead to {options.host}: {str(error) or _LATE}",
        hint="log in there with `ssh` first: it must be known, and let in without a password",
    )


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


def _not_reached(options: asyncssh.SSHClientConnectionOptions, error: asyncssh.Error | OSError) -> ProfagentError:
    where = f"{options.host} port {options.port}"
    reason = str(error) or _LATE
    if isinstance(error, asyncssh.PermissionDenied):
        return RefusedError(
            f"{where} does not let {options.username} in: no key or password was accepted",
            hint=f"give it your public key with `ssh-copy-id {options.username}@{options.orig_host}`, name another with"
            " IdentityFile in ~/.ssh/config, or run at a terminal, where a password can be asked for",
        )
    if _TOO_MANY in reason.lower():
        return RefusedError(
            f"{where} ended the login: {reason}",
            hint="an agent with many keys uses up the tries: name the right one with IdentityFile in ~/.ssh/config, and"
            " set IdentitiesOnly yes",
        )
    if options.proxy_command:
        return UnreachableError(
            f"the ProxyCommand for {where} leads to no login: {reason}",
            hint=f"run it by hand, a line that begins with SSH-2.0 should come: {shlex.join(options.proxy_command)}",
        )
    if isinstance(error, TimeoutError):
        return UnreachableError(
            f"{where} does not answer in time",
            hint="check its address, the firewall, and that it is on; ConnectTimeout in ~/.ssh/config waits longer",
        )
    return _not_connected(options.host, where, error) if isinstance(error, OSError) else _not_ssh(where, error)


def _not_ssh(where: str, error: asyncssh.Error) -> UnreachableError:
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return UnreachableError(
            f"{where} and this host have no SSH algorithm in common: {error.reason}",
            hint="name one that both have with KexAlgorithms, Ciphers or HostKeyAlgorithms in ~/.ssh/config",
        )
    return UnreachableError(
        f"{where} ended the connection before the login: {error.reason}",
        hint="check that an SSH server listens there, and its log on the board (MaxStartups, hosts.deny)",
    )


def _not_connected(host: str, where: str, error: OSError) -> UnreachableError:
    if isinstance(error, socket.gaierror):
        return UnreachableError(
            f"the name {host} does not resolve: {error.strerror}",
            hint="`profagent boards` lists the boards that have a name; check the spelling, /etc/hosts and the name"
            " server, or use the board's IP address",
        )
    if error.errno == errno.ECONNREFUSED or isinstance(error, ConnectionRefusedError):
        return UnreachableError(
            f"nothing listens at {where}", hint="start the board's SSH server, or name its port: ssh://USER@HOST:PORT"
        )
    if error.errno in _NO_ROUTE:
        return UnreachableError(
            f"there is no way to {where}: {os.strerror(error.errno)}",
            hint="check the address, cable and this host's routes",
        )
    return UnreachableError(
        f"cannot connect to {where}: {error.strerror or error}", hint="check the address, and that the board is on"
    )
