"""Manifests of uploads: a valid one names nothing outside of its folder."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mooring.model.errors import InvalidInput
from mooring.wire.workloads.uploads import (
    CHUNK_BYTES,
    MAX_ENTRIES,
    Entry,
    InvalidManifest,
    digest_of,
    encode_manifest,
    positions,
    read_manifest,
    runs,
)

ONE, TWO = digest_of(b"one"), digest_of(b"two")


def manifest(*entries: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"entries": list(entries)})


def file(path: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "size": 3, "chunks": [ONE], **more}


def link(path: str, target: str) -> dict[str, Any]:
    return {"path": path, "kind": "link", "target": target}


@pytest.mark.parametrize(
    "path",
    ["", ".", "..", "/etc/passwd", "../up", "a/../../up", "a//b", "a/./b", "a/", "a\0b", "x" * 256, "a/" * 70 + "b"],
)
def test_a_path_stays_inside_of_the_folder(path: str):
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(file(path)))


@pytest.mark.parametrize("target", ["", "/etc/passwd", "..", "../up", "sub/../../up", "a\0b", "../../x"])
def test_a_link_at_the_top_leads_nowhere_else(target: str):
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(link("alias", target)))


def test_a_link_may_rise_only_through_the_folders_that_it_is_in():
    read_manifest(manifest(link("a/b/alias", "../../file")))
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(link("a/b/alias", "../../../file")))


@pytest.mark.parametrize(
    "entries",
    [
        [file("a"), file("a")],
        [link("a", "b"), file("a/inside")],
        [file("a"), file("a/inside")],
        [link("a", "b"), {"path": "a/b/c", "kind": "folder"}],
        [{"path": "a", "kind": "hardlink", "target": "b"}],
        [{"path": "a", "kind": "device"}],
        [{"path": "a", "kind": "folder", "chunks": [ONE], "size": 3}],
        [file("a", mode=0o4755)],
        [file("a", size=CHUNK_BYTES + 1)],
        [file("a", size=-1)],
        [file("a", chunks=["../../etc/passwd"])],
        [file("a"), file("b", size=4)],
        [file("tmp")],
    ],
)
def test_ambiguous_and_unknown_entries_are_refused(entries: list[dict[str, Any]]):
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(*entries))


@pytest.mark.parametrize("path", ["d/" * 64 + "f", "x/" * 3000 + "f", "/".join(["x" * 250] * 17)])
def test_depth_and_length_of_a_path_are_limited(path: str):
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(file(path)))


def test_folders_without_an_entry_of_their_own_count():
    # 800 files in 63 folders each, of which none has an entry.
    deep = [file(f"{number}/" + "d/" * 62 + "f") for number in range(800)]
    assert len(deep) * 63 > MAX_ENTRIES > len(deep)
    with pytest.raises(InvalidManifest, match=f"at most {MAX_ENTRIES}"):
        read_manifest(manifest(*deep))
    # Together with their folders these are just as many as allowed.
    read_manifest(manifest(*deep[: MAX_ENTRIES // 64]))
    with pytest.raises(InvalidManifest):
        read_manifest(manifest(*deep[: MAX_ENTRIES // 64 + 1]))


def test_equal_folders_have_equal_manifests():
    entries = [Entry(path="b", size=3, chunks=[TWO]), Entry(path="a", size=3, chunks=[ONE])]
    assert encode_manifest(entries) == encode_manifest(reversed(entries))
    assert [chunk.digest for chunk in read_manifest(encode_manifest(entries)).chunks()] == [ONE, TWO]


def test_positions_are_written_and_read_as_runs():
    assert runs([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert positions("0-2,5,7-8", 9) == [0, 1, 2, 5, 7, 8]


@pytest.mark.parametrize("text", ["", "x", "-1", "3-1", "1,1", "2,1", "9", "0-9", "0-99999999999", "٣"])
def test_positions_that_the_manifest_does_not_have_are_refused(text: str):
    with pytest.raises(InvalidInput):
        positions(text, 9)
