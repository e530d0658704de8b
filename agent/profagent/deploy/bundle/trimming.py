"""Which part of Python's standard library a daemon on a board never needs."""

from __future__ import annotations

__all__ = ["is_needed"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PACKAGES = _names(
    "__phello__ curses dbm dist-packages distutils ensurepip idlelib lib2to3 pydoc_data site-packages sqlite3 test"
    " tkinter turtledemo venv wsgiref xmlrpc"
)
_MODULES = _names(
    "__hello__ _aix_support _bootsubprocess _osx_support _pydecimal _pyio aifc antigravity asynchat asyncore cgi cgitb"
    " chunk crypt ftplib imaplib imghdr mailbox mailcap msilib nntplib pipes poplib pydoc sitecustomize smtpd"
    " smtplib sndhdr sunau telnetlib this turtle uu wave webbrowser xdrlib zipapp"
)
_EXTENSIONS = _names(
    "_bz2 _codecs_cn _codecs_hk _codecs_iso2022 _codecs_jp _codecs_kr _codecs_tw _crypt _curses _curses_panel _dbm"
    " _gdbm _lsprof _lzma _multibytecodec _sqlite3 _tkinter _uuid audioop nis ossaudiodev readline spwd"
)
_TEST_EXTENSIONS = ("_test", "_xxtest", "_ctypes_test", "xxlimited", "xxsubtype")
# Text on a board is UTF-8 or bytes; a C library without its locales has no other anyway.
_ENCODINGS = _names(
    "__init__ aliases ascii charmap cp437 idna latin_1 punycode raw_unicode_escape unicode_escape utf_16 utf_16_be"
    " utf_16_le utf_32 utf_32_be utf_32_le utf_8 utf_8_sig"
)
_KINDS = (".py", ".so", ".txt")


def is_needed(path: str) -> bool:
    """For a path below lib/pythonX.Y, e.g. `asyncio/base_events.py` or `lib-dynload/_ssl.cpython-311-….so`."""
    if not path.endswith(_KINDS) or "__pycache__" in path:
        return False
    top, _, rest = path.partition("/")
    if not rest:
        module = top.partition(".")[0]
        return module not in _MODULES and not module.startswith("_sysconfigdata")
    if top == "lib-dynload":
        module = rest.partition(".")[0]
        return module not in _EXTENSIONS and not module.startswith(_TEST_EXTENSIONS)
    if top == "encodings":
        return rest.removesuffix(".py") in _ENCODINGS
    return top not in _PACKAGES and not top.startswith("config-") and "/test" not in f"/{rest}"
