"""`python -m tests.fault_schedules SEED [NUMBER]`: repeat a schedule and print its steps, or run NUMBER schedules."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fault_schedules import schedules
from tests.store.databases import migrate


def main() -> int:
    first, number = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "mooring.db"
        migrate(f"sqlite+aiosqlite:///{file}")
        prepared = schedules.prepare(file)
    totals: Counter[str] = Counter()
    failed = 0
    for seed in range(first, first + number):
        outcome = schedules.run(prepared, seed)
        failed += bool(outcome.violations)
        totals.update(outcome.injected)
        totals["faults"] += outcome.faults
        totals["terms"] += outcome.terms
        totals["tasks started"] += outcome.started
        if number == 1:
            sys.stdout.writelines(f"{line}\n" for line in outcome.trace)
        sys.stdout.writelines(f"seed {seed}: {what}\n" for what in outcome.violations)
        if number == 1:
            sys.stdout.write(f"digest {outcome.digest}\n")
    prepared.store.close()
    received = ", ".join(f"{name} {amount}" for name, amount in totals.items() if amount)
    sys.stdout.write(f"{number} schedules, {failed} with violations: {received}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
