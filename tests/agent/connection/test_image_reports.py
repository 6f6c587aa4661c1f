"""The server is told which images a node has: the largest, by whole names, once for every change."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from mooring.agent.image_reports import ImageReports, largest
from mooring.model.errors import MooringError
from mooring.model.images import MOST_REPORTED
from mooring.wire.agent import FromAgent, Images
from tests.agent.builders import eventually


class Keeper:
    def __init__(self) -> None:
        self.present: Mapping[str, int] | None = {}
        self.problem: Exception = MooringError("the engine sleeps")
        self.asked = 0

    async def images(self) -> Mapping[str, int]:
        self.asked += 1
        if self.present is None:
            raise self.problem
        return self.present


class Line:
    def __init__(self) -> None:
        self.sent: list[FromAgent] = []

    async def send(self, message: FromAgent) -> None:
        self.sent.append(message)


async def test_images_are_told_at_once_and_again_only_when_they_are_others() -> None:
    reports, keeper, line = ImageReports(), Keeper(), Line()
    keeper.present = {"nginx": 7}
    run = asyncio.create_task(reports.run(cast(Any, line), cast(Any, [keeper, object()])))
    await eventually(lambda: line.sent == [Images(images={"docker.io/library/nginx:latest": 7})])

    reports.used(frozenset({"sha256:1"}))
    await eventually(lambda: keeper.asked == 2)
    keeper.present = None
    reports.used(frozenset({"sha256:2"}))
    await eventually(lambda: keeper.asked == 3)
    keeper.problem = OSError("a full disk")
    reports.used(frozenset({"sha256:3"}))
    await eventually(lambda: keeper.asked == 4)
    assert len(line.sent) == 1
    keeper.present = {"localhost/tool:1": 9}
    reports.used(frozenset({"sha256:1", "sha256:2"}))
    await eventually(lambda: line.sent[1:] == [Images(images={"localhost/tool:1": 9})])
    run.cancel()


async def test_a_new_connection_is_told_anew() -> None:
    reports, keeper = ImageReports(), Keeper()
    lines = [Line(), Line()]
    for line in lines:
        run = asyncio.create_task(reports.run(cast(Any, line), cast(Any, [keeper])))
        await eventually(partial(getattr, line, "sent"))
        run.cancel()
    assert [line.sent for line in lines] == [[Images(images={})]] * 2


def test_only_the_largest_are_told_and_only_what_has_a_name() -> None:
    many = {f"localhost/i:{number}": number for number in range(MOST_REPORTED + 5)}
    found = largest([many, {"Not A Name": 10**9}])
    assert len(found) == MOST_REPORTED
    assert min(found.values()) == 5
