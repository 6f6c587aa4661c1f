"""Backfill on a published job log gives the published slowdown; the benchmark `backfill` runs all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import backfill


def test_a_sequence_of_the_lublin_log_has_the_published_slowdown(
    trace: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(backfill, "FOLDER", trace("swf/lublin_256.swf.gz").parent.parent)
    fourth = backfill.lublin_sequences()[3]
    assert round(backfill.lublin(fourth, "SJF", True).slowdown, 2) == 34.96
