"""Which boards are reached over TLS, and the keys for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profagent.errors import RefusedError, UsageError
from profagent.keys.keys import Keys
from profagent.link.addresses import KnownBoard, default_keys, is_local
from profagent.link.boards_file import BoardEntry, BoardsFile
from profagent.link.credentials import Access, Credentials, revoked_fingerprints


def at(address: str) -> KnownBoard:
    return KnownBoard(address, address)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys") / "keys"
    Keys(folder).init("lab")
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A host's folder, of the test's own."""
    host = tmp_path / "config" / "profagent" / "keys"
    host.mkdir(parents=True)
    for name in ("ca.pem", "host.pem", "host.key", "revoked.txt"):
        (host / name).write_bytes((original / name).read_bytes())
    (host / "host.key").chmod(0o600)
    return host


@pytest.fixture
def is_default(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is where keys are looked for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parents[1]))


def test_default_keys_are_in_the_users_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/c")
    assert default_keys() == Path("/c/profagent/keys")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_keys() == Path("/home/me/.config/profagent/keys")


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("127.0.0.1:1", True),
        ("127.8.9.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("127.0.0.2", True),
        ("192.0.2.1", False),
        ("unix:/run/d.sock", True),
        ("192.168.1.20:1", False),
        ("0.0.0.0:1", False),
        ("[fe80::1]:1", False),
        ("euler:1", False),
        ("localhost.example:1", False),
    ],
)
@pytest.mark.usefixtures("is_default")
def test_what_leaves_this_host_goes_over_tls(address: str, local: bool, folder: Path) -> None:
    assert is_local(address) is local
    credentials = Access().credentials(at(address))
    assert (credentials is None) is local
    if credentials is not None:
        assert credentials.folder == folder


def test_keys_that_are_named_are_used_for_local_boards_too(folder: Path) -> None:
    credentials = Access(folder).credentials(at("127.0.0.1:1"))
    assert credentials is not None
    assert (credentials.own.kind, credentials.own.role, credentials.authority.name) == ("host", "operator", "lab")


@pytest.mark.usefixtures("is_default")
def test_insecure_is_plain_text_to_any() -> None:
    assert Access(insecure=True).credentials(at("192.168.1.20:1")) is None


def test_without_keys_a_board_that_is_not_local_is_not_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"no keys for the board at euler:1") as error:
        Access().credentials(at("euler:1"))
    assert error.value.hint.startswith("--via ssh")
    assert "`profagent boards`" in error.value.hint
    assert "profagent keys init" in error.value.hint


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "euler:0", "euler:", "euler:ssh", "[::1]:-1", "fe80::abcd"])
def test_a_port_that_none_can_have_is_refused(address: str) -> None:
    for access, board in ((Access(), address), (Access(known={"euler": KnownBoard("euler", address)}), "euler")):
        with pytest.raises(UsageError, match="is not a valid port"):
            access.check(board)


def test_options_that_contradict_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="cannot be given together"):
        Access(folder, insecure=True).credentials(at("127.0.0.1:1"))
    with pytest.raises(UsageError, match="Unix socket"):
        Access(folder).credentials(at("unix:/run/d.sock"))


def test_a_list_of_the_revoked_may_be_missing(folder: Path) -> None:
    (folder / "revoked.txt").unlink()
    assert Credentials.read(folder).revoked == frozenset()
    credentials = Access(folder).credentials(at("192.168.1.20:1"))
    assert credentials is not None
    assert credentials.revoked == frozenset()


def test_a_list_that_vanishes_or_is_emptied_frees_nobody(folder: Path) -> None:
    access = Access(folder)
    access.credentials(at("192.168.1.20:1"))
    listed = (folder / "revoked.txt").read_bytes()
    (folder / "revoked.txt").write_bytes(b"")
    with pytest.raises(UsageError, match="is empty"):
        access.credentials(at("192.168.1.20:1"))
    (folder / "revoked.txt").unlink()
    with pytest.raises(UsageError, match="no longer exists") as caught:
        access.credentials(at("192.168.1.20:1"))
    assert "copy it again" in caught.value.hint
    (folder / "revoked.txt").write_bytes(listed)
    assert access.credentials(at("192.168.1.20:1")) is not None


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_key_that_others_may_read_is_refused(folder: Path, mode: int) -> None:
    (folder / "host.key").chmod(mode)
    with pytest.raises(UsageError, match="users other than its owner") as error:
        Credentials.read(folder)
    assert error.value.hint.startswith("chmod 600")


def test_what_is_no_certificate_is_named(folder: Path) -> None:
    (folder / "host.pem").write_text("nothing")
    with pytest.raises(UsageError, match=r"host\.pem holds no certificate"):
        Credentials.read(folder)


@pytest.mark.parametrize(
    "key", [b"", b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"]
)
def test_what_is_no_key_is_named_and_nobody_is_asked_for_a_passphrase(folder: Path, key: bytes) -> None:
    (folder / "host.key").write_bytes(key)
    with pytest.raises(UsageError, match="no certificate with its key"):
        Access(folder).check("127.0.0.1:1")


@pytest.mark.usefixtures("is_default")
def test_a_tunnel_to_a_daemon_with_tls_goes_over_tls(folder: Path) -> None:
    tunnel = KnownBoard("euler", "unix:/tmp/0", tls_name="192.168.1.20")
    for access in (Access(), Access(folder)):
        credentials = access.credentials(tunnel)
        assert credentials is not None
        assert credentials.folder == folder


# boards.toml: what stands there, what a change leaves as it was, and what cannot be right

FINGERPRINT = "ab" * 32
EULER = BoardEntry("euler", "192.0.2.2:50151", "u-1", FINGERPRINT, "root@euler")
TEXT = f"""# boards of lab 3
[boards.euler]
address = "192.0.2.2:50151" # on the shelf
uuid = "u-1"
fingerprint = "{FINGERPRINT}"
ssh = "root@euler"

# the loan
[boards.orange]
address = "192.0.2.3"
"""


@pytest.fixture
def file(tmp_path: Path) -> BoardsFile:
    (tmp_path / "boards.toml").write_text(TEXT, "utf-8")
    return BoardsFile(tmp_path / "boards.toml")


def test_boards_are_read_in_their_order(file: BoardsFile) -> None:
    assert list(file.entries().values()) == [EULER, BoardEntry("orange", "192.0.2.3")]
    assert file.known()["euler"].fingerprint == FINGERPRINT


def test_only_ssh_leads_to_what_listens_on_the_board_alone(file: BoardsFile) -> None:
    file.put(BoardEntry("near", "127.0.0.1"))
    file.put(BoardEntry("inside", "127.0.0.1", ssh="root@inside"))
    file.put(BoardEntry("socket", "unix:/run/profagentd/socket", ssh="root@socket"))
    found = file.behind_ssh(["socket", "euler", "near", "inside", "192.0.2.3", "inside"])
    assert [entry.name for entry in found] == ["socket", "inside"]


def test_a_change_keeps_comments_and_other_boards(file: BoardsFile) -> None:
    file.change(["euler"], joins=["rack3"], labels={"rack": "3"})
    with file.path.open("a", encoding="utf-8") as appended:
        appended.write('[boards.orange.labels]\nplace = "lab" # until May\nshelf = "a"\n')
    file.change(["orange"], labels={"rack": "3"}, drops=["shelf"])
    assert file.put(BoardEntry("euler", "192.0.2.9"))
    assert not file.put(BoardEntry("new", "192.0.2.4", uuid="u-4"))
    text = file.path.read_text("utf-8")
    assert "# boards of lab 3" in text
    assert 'address = "192.0.2.9" # on the shelf' in text
    assert "# the loan" in text
    assert 'place = "lab" # until May' in text
    assert file.entries() == {
        "euler": BoardEntry("euler", "192.0.2.9", groups=("rack3",), labels={"rack": "3"}),
        "orange": BoardEntry("orange", "192.0.2.3", labels={"place": "lab", "rack": "3"}),
        "new": BoardEntry("new", "192.0.2.4", uuid="u-4"),
    }


def test_the_name_of_another_board_is_not_taken_unasked(file: BoardsFile) -> None:
    with pytest.raises(UsageError, match="euler is another board") as error:
        file.put(BoardEntry("euler", "192.0.2.9", "u-2"), is_same=True)
    assert "profagent boards remove euler" in error.value.hint
    assert file.entries()["euler"] == EULER
    file.put(BoardEntry("orange", "192.0.2.9", "u-2"), is_same=True)
    file.put(BoardEntry("euler", "192.0.2.9", "u-1"), is_same=True)
    assert file.entries()["euler"].address == "192.0.2.9"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[boards", "boards.toml"),
        ("boards = 1", "boards is not a table"),
        ("[boards]\na = 1", "a is not a table of strings"),
        ("[boards.a]\naddress = 1", "a is not a table of strings"),
        ('[boards.a]\naddress = "h"\nuser = "x"', "unknown key 'user'"),
        ("[boards.a]\nuuid = 'x'", "a has no address"),
        ("[boards.'a.b']\naddress = 'x'", "not a valid name of a board"),
        ("[boards.a]\naddress = 'x'\nfingerprint = 'AB'", "not a SHA-256"),
        ("[boards.a]\naddress = 'x'\ngroups = 'rack3'", "a is not a table of strings"),
        ("[boards.a]\naddress = 'x'\ngroups = ['rack 3']", "not a valid name of a group"),
        ("[boards.a]\naddress = 'x'\n[boards.a.labels]\nrack = 3", "a is not a table of strings"),
        ("[boards.a]\naddress = 'x'\n[boards.a.labels]\n'the rack' = '3'", "is not a label"),
        ("\udcff", "boards.toml"),
    ],
)
def test_what_cannot_be_right_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "boards.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError, match=said) as error:
        BoardsFile(tmp_path / "boards.toml").entries()
    assert error.value.hint


# Which board has to answer for a name

KNOWN = KnownBoard("euler", "192.0.2.2", "u-1", "ab")


def test_a_name_comes_before_an_address() -> None:
    access = Access(known={"euler": KNOWN})
    assert access.named("euler").address == "192.0.2.2:50151"
    assert access.named("euler.local") == KnownBoard("euler.local:50151", "euler.local:50151")


# The list of revoked certificates

ONE = "0123456789abcdef" * 4


def test_fingerprints_stand_a_line_each_with_remarks() -> None:
    colons = ":".join(["AB"] * 32)
    text = f"# nobody is trusted for ever\n\n{ONE}  # board euler, 2026-01-01\n {colons} \n"
    assert revoked_fingerprints(text, "list") == {ONE, "ab" * 32}


def test_a_list_of_remarks_revokes_nobody() -> None:
    assert revoked_fingerprints("# nobody\n", "list") == frozenset()


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_list_that_was_emptied_is_none(text: str) -> None:
    with pytest.raises(UsageError, match="list is empty") as caught:
        revoked_fingerprints(text, "list")
    assert "copy it again" in caught.value.hint


@pytest.mark.parametrize("line", [ONE[1:], ONE + "0", "g" * 64, "euler"])
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="list: line 2 is not a SHA-256"):
        revoked_fingerprints(f"{ONE}\n{line}\n", "list")


# A certificate that names no identity

A, PLACE = "aaaaaaaa-1111-1111-1111-111111111111", "192.168.1.20:1"


def knowing(keys: Keys, *known: KnownBoard) -> Access:
    return Access(keys.folder, known={each.name: each for each in known})


def test_a_certificate_without_an_identity_serves_no_board_whose_identity_is_pinned(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys")
    keys.init("lab")
    anybodys = keys.issue_board("older", ("192.168.1.20",)).certificate
    knowing(keys).check_identity(at(PLACE), A, anybodys)  # nobody has said whose that is
    by_fingerprint = KnownBoard("older", PLACE, uuid=A, fingerprint=anybodys.fingerprint)
    for access, board in (
        (knowing(keys), KnownBoard("euler", PLACE, uuid=A)),
        (knowing(keys, KnownBoard("euler", "192.168.1.99:1", uuid=A)), at(PLACE)),
    ):
        with pytest.raises(RefusedError, match="it names no identity") as refused:
            access.check_identity(board, A, anybodys)
        assert f"--identity {A}" in refused.value.hint
    knowing(keys, by_fingerprint).check_identity(by_fingerprint, A, anybodys)
    own = keys.issue_board("euler", ("192.168.1.20",), identity=A).certificate
    knowing(keys).check_identity(at(PLACE), A, own)
    with pytest.raises(RefusedError, match="it names no identity"):
        knowing(keys).check_identity(at(PLACE), A, anybodys)
    knowing(keys).check_identity(at(PLACE), "another", anybodys)
