"""Leadership of one process. The store issues its term; once a newer term exists, all its writes fail."""

from __future__ import annotations

from mooring.clock import now
from mooring.coordination.election import Claim
from mooring.model.errors import LeadershipLost
from mooring.store.control import leadership
from mooring.store.core.engine import Database

_ALONE = Claim("alone")


class Leadership:
    """The leader's term, from `begin_term` to `end_term`."""

    def __init__(self, database: Database, holder: str) -> None:
        self._database = database
        self.holder = holder
        self._term: int | None = None

    @property
    def held(self) -> bool:
        return self._term is not None

    @property
    def term(self) -> int:
        if self._term is None:
            raise LeadershipLost(f"{self.holder} does not lead")
        return self._term

    async def begin_term(self, claim: Claim = _ALONE) -> int:
        self._term = await self._database.write(
            lambda connection: leadership.start_term(
                connection,
                self.holder,
                now(),
                kind=claim.kind,
                cluster=claim.cluster,
                revision=claim.revision,
            )
        )
        return self._term

    async def ping_database(self) -> None:
        """Return once the database answers."""
        await self._database.ping()

    def end_term(self) -> None:
        self._term = None
