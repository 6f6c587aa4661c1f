"""Output: rotated by size, read by lines, followed while it grows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mooring.agent.access.logs import LogReader, read_log
from mooring.agent.runtimes.process.supervisor.output import RotatedFile


def read_all(reader: LogReader, portion: int = 7) -> bytes:
    parts = []
    while data := reader.read(portion):
        parts.append(data)
    return b"".join(parts)


def lines(count: int, first: int = 0) -> bytes:
    return b"".join(b"line %d\n" % number for number in range(first, first + count))


def rotated(path: Path, limit: int = 64, count: int = 3) -> RotatedFile:
    return RotatedFile(str(path), limit, count)


def test_files_stay_within_their_size_and_number(tmp_path):
    log = rotated(tmp_path / "output.log")
    for number in range(200):
        log.write(b"line %d\n" % number)
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["output.log", "output.log.1", "output.log.2"]
    assert all(file.stat().st_size <= 64 for file in files)


def test_retained_output_is_the_newest_without_a_gap(tmp_path):
    log = rotated(tmp_path / "output.log")
    log.write(lines(200))
    stored = read_all(LogReader(tmp_path / "output.log", 3))
    assert lines(200).endswith(stored)
    assert stored.startswith(b"line ")
    assert len(stored) > 64


def test_a_line_longer_than_a_file_is_cut_into_files(tmp_path):
    log = rotated(tmp_path / "output.log")
    log.write(b"x" * 150)
    assert read_all(LogReader(tmp_path / "output.log", 3)) == b"x" * 150


def test_a_single_file_is_begun_anew(tmp_path):
    log = rotated(tmp_path / "output.log", count=1)
    log.write(lines(50))
    assert [file.name for file in tmp_path.iterdir()] == ["output.log"]
    assert lines(50).endswith((tmp_path / "output.log").read_bytes())


@pytest.mark.parametrize("tail", [0, 1, 2, 5, 9, 15, 20])
def test_the_last_lines_are_found_across_rotated_files(tmp_path, tail):
    log = rotated(tmp_path / "output.log")
    log.write(lines(20))
    stored = read_all(LogReader(tmp_path / "output.log", 3)).splitlines(keepends=True)
    expected = b"".join(stored[-tail:]) if tail else b""
    assert read_all(LogReader(tmp_path / "output.log", 3, tail)) == expected


def test_an_unfinished_last_line_counts_as_a_line(tmp_path):
    (tmp_path / "output.log").write_bytes(b"one\ntwo\nthr")
    assert read_all(LogReader(tmp_path / "output.log", 3, 2)) == b"two\nthr"
    assert read_all(LogReader(tmp_path / "output.log", 3, 0)) == b""


def test_a_log_that_does_not_exist_yet_is_empty_and_then_read(tmp_path):
    reader = LogReader(tmp_path / "output.log", 3, 5)
    assert reader.read(10) == b""
    (tmp_path / "output.log").write_bytes(b"now\n")
    assert reader.read(10) == b"now\n"


def test_a_reader_goes_on_through_rotations(tmp_path):
    log = rotated(tmp_path / "output.log")
    log.write(lines(3))
    reader = LogReader(tmp_path / "output.log", 3)
    heard = read_all(reader)
    for number in range(3, 40):
        log.write(b"line %d\n" % number)
        if number % 5 == 0:
            heard += read_all(reader)
    assert heard + read_all(reader) == lines(40)


def test_a_reader_far_behind_continues_with_the_oldest_retained_output(tmp_path):
    log = rotated(tmp_path / "output.log")
    log.write(lines(1))
    reader = LogReader(tmp_path / "output.log", 3)
    assert read_all(reader) == lines(1)
    log.write(lines(200, first=1))
    rest = read_all(reader)
    assert lines(201).endswith(rest[rest.index(b"\nline 1") + 1 :])


async def test_following_ends_with_the_task_and_loses_nothing(tmp_path):
    log = rotated(tmp_path / "output.log", limit=1000)
    over = False

    async def follow() -> bytes:
        stream = read_log(tmp_path / "output.log", 3, tail=None, follow=True, ended=lambda: over)
        return b"".join([data async for data in stream])

    following = asyncio.create_task(follow())
    for number in range(30):
        log.write(b"line %d\n" % number)
        await asyncio.sleep(0)
    over = True
    assert await following == lines(30)


async def test_not_following_ends_at_the_present_end(tmp_path):
    rotated(tmp_path / "output.log").write(lines(2))
    stream = read_log(tmp_path / "output.log", 3, tail=1, follow=False, ended=lambda: False)
    assert [data async for data in stream] == [b"line 1\n"]
