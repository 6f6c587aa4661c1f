"""`python -m tests.system.schema --seconds 600`: requests made from the API's description, as every role in turn."""

from __future__ import annotations

import argparse
import random
import sys
from contextlib import ExitStack

from tests.servers import PostgresServer, running_postgres
from tests.system.schema.run import Report, run
from tests.system.schema.world import ROLES


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="time per role (default 600)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the requests (default: a new one)")
    parser.add_argument("--role", choices=ROLES, action="append", help="only this role; may be repeated")
    parser.add_argument(
        "--database",
        choices=("sqlite", "postgresql"),
        default="sqlite",
        help="database of the servers (default sqlite); postgresql starts a PostgreSQL server for the run",
    )
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres()) if options.database == "postgresql" else None
        reports = [_run(role, options.seconds, seed, postgres) for role in options.role or ROLES]
    return int(any(report.problems for report in reports))


def _run(role: str, seconds: float, seed: int, postgres: PostgresServer | None) -> Report:
    """Print the report of a role as soon as it is complete: all of them take more than an hour."""
    report = run(role, seconds, seed, _say, postgres=postgres)
    for line in report.lines():
        _say(line)
    return report


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
