"""Output: rotated by size, read by lines, followed while it grows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mooring.agent.access.logs import LogReader, read_log
from mooring.agent.runtimes.process.supervisor.output import RotatedFile
from mooring.model.errors import Conflict


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
    files = sorted(file for file in tmp_path.iterdir() if not file.name.endswith(".times"))
    assert [file.name for file in files] == ["output.log", "output.log.1", "output.log.2"]
    assert all(file.stat().st_size <= 64 for file in files)
    times = sorted(file.name for file in tmp_path.iterdir() if file.name.endswith(".times"))
    assert times == ["output.log.1.times", "output.log.2.times", "output.log.times"]


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


def test_a_single_file_starts_over(tmp_path):
    log = rotated(tmp_path / "output.log", count=1)
    log.write(lines(50))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["output.log", "output.log.times"]
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


def test_a_reader_continues_through_rotations(tmp_path):
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


# --- times ---


async def collected(path: Path, count: int = 3, **options: Any) -> bytes:
    asked: dict[str, Any] = {"tail": None, "follow": False, "ended": lambda: True} | options
    return b"".join([data async for data in read_log(path, count, **asked)])


def timed(path: Path, *writes: tuple[float, bytes], limit: int = 1000, count: int = 3) -> Path:
    log = rotated(path / "output.log", limit, count)
    for at, data in writes:
        log.write(data, at)
    log.close()
    return path / "output.log"


async def test_lines_carry_the_time_at_which_they_began(tmp_path):
    path = timed(tmp_path, (0.0, b"one\ntw"), (60.25, b"o\nthree\n"), (61.5, b"four"))
    assert await collected(path, timestamps=True) == (
        b"1970-01-01T00:00:00.000Z one\n"
        b"1970-01-01T00:00:00.000Z two\n"
        b"1970-01-01T00:01:00.250Z three\n"
        b"1970-01-01T00:01:01.500Z four"
    )
    assert await collected(path) == b"one\ntwo\nthree\nfour"


@pytest.mark.parametrize(
    ("since", "tail", "expected"),
    [
        (0, None, b"one\ntwo\nthree\nfour\n"),
        # A line that began earlier is left out, although its end arrived later.
        (10, None, b"three\nfour\n"),
        (20, None, b"four\n"),
        (30, None, b""),
        (0, 1, b"four\n"),
        (20, 3, b"four\n"),
        (10, 0, b""),
    ],
)
async def test_output_begins_with_the_first_line_since_a_time(tmp_path, since, tail, expected):
    path = timed(tmp_path, (0.0, b"one\ntw"), (10.0, b"o\nthree\n"), (20.0, b"four\n"))
    assert await collected(path, since=since, tail=tail) == expected


async def test_times_follow_their_files_through_rotations(tmp_path):
    writes = [(float(number), b"line %d\n" % number) for number in range(30)]
    path = timed(tmp_path, *writes, limit=64)
    stored = (await collected(path, timestamps=True)).splitlines()
    assert len(stored) > 10
    for line in stored:
        moment, _, number = line.partition(b" line ")
        assert moment == b"1970-01-01T00:00:%02d.000Z" % int(number)
    for since in range(30):
        found = await collected(path, since=since)
        assert found == b"".join(data for at, data in writes if at >= max(since, 30 - len(stored)))


async def test_many_writes_in_a_moment_share_an_entry(tmp_path):
    path = timed(tmp_path, *((number / 1000, b"x\n") for number in range(400)))
    entries = (tmp_path / "output.log.times").stat().st_size // 16 - 1
    assert entries <= 4
    assert (await collected(path, timestamps=True)).count(b"x\n") == 400


async def test_entries_get_rarer_in_a_file_with_very_many(tmp_path):
    log = rotated(tmp_path / "output.log", 10_000_000)
    for number in range(3 * 16384):
        log.write(b".", number / 5)
    log.close()
    entries = (tmp_path / "output.log.times").stat().st_size // 16 - 1
    assert 16384 * 2 < entries < 16384 * 3
    assert (tmp_path / "output.log").stat().st_size == 3 * 16384


async def test_a_reopened_log_continues_its_times(tmp_path):
    timed(tmp_path, (1.0, b"one\n"))
    path = timed(tmp_path, (2.0, b"two\n"))
    stamps = [line[:24] for line in (await collected(path, timestamps=True)).splitlines()]
    assert stamps == [b"1970-01-01T00:00:01.000Z", b"1970-01-01T00:00:02.000Z"]


async def test_output_of_an_older_agent_has_no_times(tmp_path):
    (tmp_path / "output.log").write_bytes(b"one\n")
    for options in ({"timestamps": True}, {"since": 0.0}):
        with pytest.raises(Conflict, match="without times"):
            await collected(tmp_path / "output.log", **options)
    path = timed(tmp_path, (2.0, b"two\n"))
    assert await collected(path, timestamps=True) == b"- one\n1970-01-01T00:00:02.000Z two\n"
    assert await collected(path, since=1.0) == b"two\n"


async def test_followed_output_is_marked_as_it_arrives(tmp_path):
    path = tmp_path / "output.log"
    log = rotated(path, 64)
    log.write(b"line 0\n", 0.0)
    over = False
    following = read_log(path, 3, tail=None, follow=True, ended=lambda: over, timestamps=True)
    seen = await anext(following)
    for number in range(1, 20):
        log.write(b"line %d\n" % number, float(number))
        while b"line %d\n" % number not in seen:
            seen += await anext(following)
    over = True
    log.close()
    assert seen == b"".join(b"1970-01-01T00:00:%02d.000Z line %d\n" % (number, number) for number in range(20))


async def test_a_time_index_that_cannot_be_written_loses_no_output(tmp_path):
    (tmp_path / "output.log.times").mkdir()
    path = timed(tmp_path, (1.0, b"one\n"))
    assert await collected(path) == b"one\n"
