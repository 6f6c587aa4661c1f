"""The position at which followed output continues after an interruption."""

from __future__ import annotations

from mooring.model.workloads.output import OutputPosition


def test_output_continues_after_the_bytes_that_were_read():
    read = OutputPosition().after(b"tick\n").after(b"tick\n")
    assert read.found_in(b"tick\n" * 5, from_start=True) == 10


def test_output_without_its_oldest_part_continues_after_the_last_bytes_that_were_read():
    read = OutputPosition().after(b"one\ntwo\n").after(b"three\n")
    assert read.found_in(b"two\nthree\nfour\n", from_start=True) is None
    read = OutputPosition(100, b"three\n")
    assert read.found_in(b"two\nthree\nfour\n", from_start=True) == 10


def test_the_last_lines_are_found_wherever_they_are_stored():
    read = OutputPosition().after(b"nine\nten\n")
    assert read.found_in(b"eight\nnine\nten\neleven\n", from_start=False) == 15
    assert read.found_in(b"eleven\n", from_start=False) is None
