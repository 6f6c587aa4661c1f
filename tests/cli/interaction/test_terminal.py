"""Keys that leave a terminal to which every single key goes."""

from __future__ import annotations

import pytest

from mooring.cli.interaction.terminal import DetachKeys


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        ([b"ls\n"], b"ls\n", False),
        ([b"ls\x10\x11"], b"ls", True),
        ([b"ls\x10", b"\x11"], b"ls", True),
        ([b"\x10", b"x"], b"\x10x", False),
        ([b"\x10", b"\x10", b"\x11"], b"\x10", True),
        ([b"\x11", b"\x11\x10"], b"\x11\x11", False),
    ],
    ids=[
        "none of them",
        "both at once",
        "one after the other",
        "only the first",
        "the first twice",
        "in another order",
    ],
)
def test_the_keys_leave_and_any_other_goes_to_the_far_end(typed: list[bytes], passed: bytes, leaves: bool) -> None:
    keys = DetachKeys()
    taken = [keys.take(each) for each in typed]
    assert (b"".join(data for data, _ in taken), taken[-1][1]) == (passed, leaves)
