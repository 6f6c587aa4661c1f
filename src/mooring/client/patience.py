"""When a server says that it has too much to do, both clients come back by themselves, as late as it asks."""

from __future__ import annotations

import random

from mooring.model.errors import TooManyAttempts

_WORTH_WAITING = frozenset({"overloaded", "too-many-requests"})
"""Nothing of these requests was done, so that any may be sent again. Failed logins and open streams are not of them."""
_LATER_BY = 0.25
"""Of the pause, at most: clients that were refused together do not come back together."""


class Patience:
    """Of one request: how long it may be put off in all."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    def pause_seconds(self, error: TooManyAttempts) -> float:
        """How long to wait before it is sent again; raises the error where that is of no use, or takes too long."""
        asked = error.details.get("retry_after_seconds")
        if error.code not in _WORTH_WAITING or not isinstance(asked, int | float) or asked > self._left:
            raise error
        self._left -= asked
        return asked * random.uniform(1.0, 1.0 + _LATER_BY)
