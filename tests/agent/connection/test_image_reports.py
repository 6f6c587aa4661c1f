"""Image reports: an agent reports the largest images of its node by full name, once per change."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

from mooring.agent.connection.image_reports import ImageReports, largest
from mooring.model.errors import MooringError
from mooring.model.workloads.images import MAX_REPORTED_IMAGES
from mooring.wire.agents.agent_protocol import FromAgent, Images
from tests.agent.builders import eventually


class TaskReconciler:
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


async def test_images_are_reported_at_once_and_again_only_after_a_change() -> None:
    reports, reconciler, line = ImageReports(), TaskReconciler(), Line()
    reconciler.present = {"nginx": 7}
    run = asyncio.create_task(reports.run(cast(Any, line), cast(Any, [reconciler, object()])))
    await eventually(lambda: line.sent == [Images(images={"docker.io/library/nginx:latest": 7})])

    reports.used(frozenset({"sha256:1"}))
    await eventually(lambda: reconciler.asked == 2)
    reconciler.present = None
    reports.used(frozenset({"sha256:2"}))
    await eventually(lambda: reconciler.asked == 3)
    reconciler.problem = OSError("a full disk")
    reports.used(frozenset({"sha256:3"}))
    await eventually(lambda: reconciler.asked == 4)
    assert len(line.sent) == 1
    reconciler.present = {"localhost/tool:1": 9}
    reports.used(frozenset({"sha256:1", "sha256:2"}))
    await eventually(lambda: line.sent[1:] == [Images(images={"localhost/tool:1": 9})])
    run.cancel()


async def test_image_reports_are_repeated_on_a_new_connection() -> None:
    reports, reconciler = ImageReports(), TaskReconciler()
    lines = [Line(), Line()]
    for line in lines:
        run = asyncio.create_task(reports.run(cast(Any, line), cast(Any, [reconciler])))
        await eventually(partial(getattr, line, "sent"))
        run.cancel()
    assert [line.sent for line in lines] == [[Images(images={})]] * 2


def test_only_the_largest_named_images_are_reported() -> None:
    many = {f"localhost/i:{number}": number for number in range(MAX_REPORTED_IMAGES + 5)}
    found = largest([many, {"Not A Name": 10**9}])
    assert len(found) == MAX_REPORTED_IMAGES
    assert min(found.values()) == 5
