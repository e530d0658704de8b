"""What asyncssh and the system raise, as profagent's own errors, each with what to do next."""

from __future__ import annotations

import errno
import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING

import asyncssh

from profagent.errors import ProfagentError, RefusedError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from profagent.ssh.settings import Settings

# asyncssh's words for a connection that has ended, in place of the server's for a channel that it does not open.
_CLOSED = "SSH connection closed"
_TOO_MANY = "too many authentication failures"
_NO_ROUTE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN)


@contextmanager
def connecting(settings: Settings, unusable: Sequence[str] = ()) -> Iterator[None]:
    """What goes wrong up to the login; `unusable` are keys that could not be tried, and why."""
    where = f"{settings.host} port {settings.port}"
    try:
        yield
    except ProfagentError:
        raise
    except asyncssh.PermissionDenied as error:
        raise _denied(settings, unusable) from error
    except asyncssh.ChannelOpenError as error:
        raise UnreachableError(
            f"the jump host cannot reach {where}: {error.reason}",
            hint="check ProxyJump in ~/.ssh/config, and that the board is on in that network",
        ) from error
    except (asyncssh.Error, OSError) as error:
        raise _not_reached(settings, error) from error


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


def _not_reached(settings: Settings, error: asyncssh.Error | OSError) -> UnreachableError:
    where = f"{settings.host} port {settings.port}"
    reason = str(getattr(error, "reason", error))
    is_late = isinstance(error, TimeoutError)
    if _TOO_MANY in reason.lower():
        return RefusedError(
            f"{where} ended the login: {reason}",
            hint="an agent with many keys uses up the tries: name the right one with IdentityFile in ~/.ssh/config, and"
            " set IdentitiesOnly yes",
        )
    if settings.proxy and not settings.jumps:
        why = f"nothing for {settings.connect_s:g} s" if is_late else reason
        return UnreachableError(
            f"the ProxyCommand for {where} leads to no login: {why}",
            hint=f"run it by hand, a line that begins with SSH-2.0 should come: {settings.proxy}",
        )
    if is_late:
        return UnreachableError(
            f"{where} does not answer within {settings.connect_s:g} s",
            hint="check its address, the firewall, and that it is on; ConnectTimeout in ~/.ssh/config waits longer",
        )
    return _not_connected(settings, error) if isinstance(error, OSError) else _not_ssh(where, error)


def _denied(settings: Settings, unusable: Sequence[str]) -> RefusedError:
    login = f"{settings.user}@{settings.target.host}"
    unread = f" (cannot be used: {'; '.join(unusable)})" if unusable else ""
    return RefusedError(
        f"{settings.host} port {settings.port} does not let {settings.user} in: no key or password was accepted"
        f"{unread}",
        hint=f"give it your public key with `ssh-copy-id {login}`, name another with IdentityFile in ~/.ssh/config, or"
        " run at a terminal, where a password can be asked for",
    )


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


def _not_connected(settings: Settings, error: OSError) -> UnreachableError:
    where = f"{settings.host} port {settings.port}"
    if isinstance(error, socket.gaierror):
        return UnreachableError(
            f"the name {settings.host} does not resolve: {error.strerror}",
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
