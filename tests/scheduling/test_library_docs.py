"""The examples of docs/how-to/library.md are run as they stand."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs" / "how-to" / "library.md"


def test_the_examples_of_the_library_documentation_hold():
    text = DOCUMENT.read_text()
    blocks = re.findall(r"```pycon\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in blocks:
        example = doctest.DocTestParser().get_doctest(block, names, DOCUMENT.name, str(DOCUMENT), 0)
        runner.run(example, clear_globs=False)
        names.update(example.globs)
    assert runner.summarize(verbose=False).failed == 0


def test_everything_that_the_package_offers_can_be_imported():
    import mooring

    for name in mooring.__all__:
        assert getattr(mooring, name) is not None
