"""`profagent keys`."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from profagent.cli import options
from profagent.cli.documents import print_document
from profagent.keys.keys import DAYS, CertificateEntry, IssuedCertificate, Keys
from profagent.limits import MOST_DAYS
from profagent.link.addresses import default_keys
from profagent.link.credentials import REVOKED, ROLES, VIEWER, Certificate
from profagent.tables.table import Column, table_lines

TITLES = ("kind", "name", "role", "until", "state", "fingerprint (SHA-256)", "addresses")
COLUMNS = tuple(Column(title) for title in TITLES)


keys_folder = click.option(
    "--keys", type=options.FOLDER, metavar="DIR", help="The folder of keys; without it ~/.config/profagent/keys."
)
days = click.option(
    "--days",
    type=click.IntRange(1, MOST_DAYS),
    default=DAYS,
    show_default=True,
    metavar="N",
    help="The number of days for which the certificate is valid.",
)


@click.group("keys")
def command() -> None:
    """Make, issue and revoke the TLS keys by which boards and hosts recognise each other.

    Example: profagent keys init
    Example: profagent keys issue board euler --address 192.168.1.20
    """


@command.command("init")
@keys_folder
@click.option("--name", default="", metavar="NAME", help="The CA's name; without it this host's name.")
@days
def init(*, keys: Path | None, name: str, days: int) -> None:
    """Make a CA, and an operator's certificate for this host. Existing files are never overwritten.

    Example: profagent keys init --name lab-3
    Example: profagent keys init --days 365
    """
    made = _keys(keys).init(name, days)
    click.echo(f"made the CA {made.certificate.issuer} in {made.folder}; keep its ca.key secret, and keep a backup")
    click.echo(_sentence(made.certificate))
    click.echo("next: profagent keys issue board NAME --address IP")


@command.group("issue")
def issue() -> None:
    """Issue a certificate to a board, or to another host.

    Example: profagent keys issue host ci --role viewer
    Example: profagent keys issue board euler --address 192.168.1.20
    """


@issue.command("board")
@click.argument("name")
@click.option(
    "--address",
    "addresses",
    multiple=True,
    metavar="IP|NAME",
    help="An address by which hosts reach the board; may be repeated.",
)
@click.option(
    "--identity",
    default=lambda: str(uuid4()),
    show_default="a new one",
    metavar="UUID",
    help="The board's identity; hosts refuse another board that uses these keys.",
)
@keys_folder
@days
@options.as_json
def board(*, name: str, addresses: tuple[str, ...], identity: str, keys: Path | None, days: int, as_json: bool) -> None:
    """Issue a certificate to a board, and write it to a folder that you copy there.

    The certificate is valid only for the board with this identity: copy the folder's board-id to
    /etc/profagent/board-id on the board. If the board already has an identity, in that file or in /etc/machine-id,
    name it with --identity.

    Example: profagent keys issue board euler --address 192.168.1.20 --address euler.local
    Example: profagent keys issue board lab-3 --address 192.168.1.23 --days 365
    """
    made = _keys(keys).issue_board(name, addresses, days, identity)
    _show_made(
        made,
        "copy that folder to the board, and its board-id to /etc/profagent/board-id; start there: profagentd --listen"
        " 0.0.0.0:50151 --tls-cert board.pem --tls-key board.key --tls-ca ca.pem --tls-revoked revoked.txt …",
        as_json=as_json,
    )


@issue.command("host")
@click.argument("name")
@click.option(
    "--role", type=click.Choice(ROLES), default=VIEWER, show_default=True, help="What the host may do on boards."
)
@keys_folder
@days
@options.as_json
def host(*, name: str, role: str, keys: Path | None, days: int, as_json: bool) -> None:
    """Issue a certificate to another host, and write it to a folder that you copy there.

    Example: profagent keys issue host nightly --role operator
    Example: profagent keys issue host ci --role viewer
    """
    made = _keys(keys).issue_host(name, role, days)
    _show_made(made, "copy that folder to the host, as ~/.config/profagent/keys of whoever uses it", as_json=as_json)


@command.command("list")
@keys_folder
@options.as_json
def list_(*, keys: Path | None, as_json: bool) -> None:
    """List the CA's certificates, and which are revoked or have expired.

    Example: profagent keys list --json
    Example: profagent keys list
    """
    entries = _keys(keys).entries()
    if as_json:
        print_document("keys", [_fields(entry) for entry in entries])
        return
    for line in table_lines(COLUMNS, [_row(entry) for entry in entries]):
        click.echo(line)


@command.command("revoke")
@click.argument("what", metavar="NAME|FINGERPRINT")
@keys_folder
def revoke(*, what: str, keys: Path | None) -> None:
    """Revoke the certificate of a board or a host. A board refuses it once it has the new list.

    Example: profagent keys revoke ci
    Example: profagent keys revoke euler
    """
    issuer = _keys(keys)
    for certificate in issuer.revoke(what):
        click.echo(f"revoked: {_sentence(certificate)}")
    click.echo(
        f"now copy {issuer.folder / REVOKED} to each board's tls_revoked (read again within seconds), and to hosts"
    )


def _keys(folder: Path | None) -> Keys:
    return Keys(folder or default_keys())


def _sentence(certificate: Certificate) -> str:
    role = f", {certificate.role}" if certificate.role else ""
    return (
        f"{certificate.kind} {certificate.name}{role}, until {certificate.until:%Y-%m-%d}, "
        f"SHA-256 {certificate.fingerprint}"
    )


def _show_made(made: IssuedCertificate, next_step: str, *, as_json: bool) -> None:
    if as_json:
        fields = _fields(CertificateEntry(made.certificate, revoked=False))
        print_document("keys-issue", {**fields, "folder": str(made.folder)})
        return
    click.echo(_sentence(made.certificate))
    click.echo(f"written to {made.folder}, which only its owner can read")
    click.echo(f"next: {next_step}")


def _fields(entry: CertificateEntry) -> dict[str, Any]:
    certificate = entry.certificate
    return {
        "kind": certificate.kind,
        "name": certificate.name,
        "role": certificate.role or None,
        "fingerprint": certificate.fingerprint,
        "until": certificate.until.isoformat(),
        "addresses": list(certificate.addresses),
        "revoked": entry.revoked,
        "expired": entry.expired,
    }


def _row(entry: CertificateEntry) -> tuple[str, ...]:
    found = entry.certificate
    state = "revoked" if entry.revoked else "expired" if entry.expired else "valid"
    until, addresses = f"{found.until:%Y-%m-%d}", " ".join(found.addresses)
    return (found.kind, found.name, found.role, until, state, found.fingerprint, addresses)
