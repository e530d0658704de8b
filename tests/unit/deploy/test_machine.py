"""When marks are those of another machine."""

from __future__ import annotations

import pytest

from profagent.deploy.visiting import is_another_machine

IMAGE = ("machine-id:1", "host-key:1")


@pytest.mark.parametrize(
    ("before", "now", "by_image", "is_another"),
    [
        (("mac:1", "mac:2", *IMAGE), ("mac:2", "mac:3", *IMAGE), True, False),
        (("mac:1", *IMAGE), ("mac:2", *IMAGE), True, True),
        (("mac:1", *IMAGE), ("mac:2", *IMAGE), False, True),
        (("mac:1", "serial:1"), ("mac:1", "serial:2"), True, False),
        (("serial:1", *IMAGE), ("mac:1", "serial:2", *IMAGE), True, True),
        (("serial:1",), ("serial:1", "machine-id:2", "host-key:2"), True, False),
        (IMAGE, ("machine-id:2", "host-key:1"), True, False),
        (IMAGE, ("machine-id:2", "host-key:2"), True, True),
        (IMAGE, ("machine-id:2", "host-key:2"), False, False),
        (("host-key:1",), ("host-key:2",), True, True),
        (("machine-id:1",), ("host-key:2",), True, False),
        ((), ("mac:2", *IMAGE), True, False),
        (("mac:1",), (), True, False),
    ],
)
def test_hardware_tells_and_else_all_of_the_image(
    before: tuple[str, ...], now: tuple[str, ...], *, by_image: bool, is_another: bool
) -> None:
    assert is_another_machine(before, now, by_image=by_image) == is_another
