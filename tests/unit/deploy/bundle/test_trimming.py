"""What of the standard library a board gets."""

from __future__ import annotations

import pytest

from profagent.deploy.bundle.assembling import is_needed

NEEDED = """
os.py site.py asyncio/base_events.py json/decoder.py tomllib/_parser.py encodings/utf_8.py encodings/aliases.py
lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so lib-dynload/_asyncio.cpython-311-aarch64-linux-gnu.so
unittest/mock.py importlib/metadata/__init__.py LICENSE.txt"""
LEFT_OUT = """
test/test_os.py idlelib/idle.py tkinter/__init__.py lib2to3/Grammar.txt ctypes/test/test_init.py
encodings/cp1252.py lib-dynload/_tkinter.cpython-311-x86_64-linux-gnu.so lib-dynload/_testcapi.cpython-311.so
lib-dynload/_xxtestfuzz.cpython-311-x86_64-linux-gnu.so __pycache__/os.cpython-311.pyc asyncio/__pycache__/log.pyc
_sysconfigdata__linux_x86_64-linux-gnu.py site-packages/pip/__init__.py EXTERNALLY-MANAGED turtle.py
config-3.11-x86_64-linux-gnu/python.o"""


@pytest.mark.parametrize("path", NEEDED.split())
def test_needed(path: str) -> None:
    assert is_needed(path)


@pytest.mark.parametrize("path", LEFT_OUT.split())
def test_left_out(path: str) -> None:
    assert not is_needed(path)
