"""Certificates made by the openssl command: they know nothing of profagent's own, and need nothing but it."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import grpc

from profagentd.access import fingerprint_of

SINCE = "19700101000000Z"
EVER = "20490101000000Z"
PAST = "20200101000000Z"
OPERATOR = "URI:profagent:role:operator"

_CONFIG = """
[ca]
default_ca = this
[this]
database = {0}/index.txt
new_certs_dir = {0}
serial = {0}/serial
unique_subject = no
default_md = sha256
policy = any
copy_extensions = copy
[any]
commonName = supplied
"""


def openssl(*arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run the openssl command to its end."""
    assert shutil.which("openssl"), "these tests need the openssl command (Debian: apt-get install openssl)"
    return subprocess.run(
        ["openssl", *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
    )


@dataclass(frozen=True)
class Pair:
    """The files of a certificate, of its key and of who issued it."""

    cert: Path
    key: Path
    ca: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex."""
        return fingerprint_of(self.cert.read_bytes())

    @property
    def client(self) -> grpc.ChannelCredentials:
        """A client that shows it."""
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), self.key.read_bytes(), self.cert.read_bytes())

    @property
    def arguments(self) -> list[str]:
        """A daemon that shows it, and takes clients of the same authority."""
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key), "--tls-ca", str(self.ca)]


class Authority:
    """Issues certificates from 1970 on."""

    def __init__(self, folder: Path, name: str = "workshop") -> None:
        folder.mkdir()
        self.folder = folder
        self.cert, self._key = folder / "ca.pem", folder / "ca.key"
        (folder / "index.txt").touch()
        (folder / "serial").write_text("01")
        (folder / "config").write_text(_CONFIG.format(folder))
        self._new_key(self._key)
        openssl("req", "-x509", "-key", self._key, "-subj", f"/CN={name}", "-days", 9000, "-out", self.cert)

    def issue(self, name: str, *alternatives: str, since: str = SINCE, until: str = EVER) -> Pair:
        """A certificate with these alternative names, as openssl writes them."""
        request, cert, key = (self.folder / f"{name}.{suffix}" for suffix in ("csr", "pem", "key"))
        self._new_key(key)
        names = ["-addext", f"subjectAltName={','.join(alternatives)}"] if alternatives else []
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", *names, "-out", request)
        dates = ("-startdate", since, "-enddate", until)
        issuer = ("-config", self.folder / "config", "-cert", self.cert, "-keyfile", self._key)
        openssl("ca", "-batch", "-notext", *issuer, *dates, "-in", request, "-out", cert)
        return Pair(cert, key, self.cert)

    def board(self, *, since: str = SINCE, until: str = EVER) -> Pair:
        """A board's certificate, for loopback addresses."""
        return self.issue("board", "IP:127.0.0.1", "IP:::1", "DNS:localhost", since=since, until=until)

    def _new_key(self, path: Path) -> None:
        openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", path)
        path.chmod(0o600)
