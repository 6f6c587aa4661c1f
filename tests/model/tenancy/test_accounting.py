"""Units of usage reports."""

import pytest

from mooring.model.tenancy.accounting import hours_unit, slot_hours


@pytest.mark.parametrize(
    ("slot", "amount_seconds", "hours", "unit"),
    [
        ("cpu", 1500 * 3600, "1.500", "1"),
        ("gpu", 500 * 1800, "0.250", "1"),
        ("memory", (2 << 30) * 5400, "3.000", "Gi"),
        ("licence", 7 * 3600, "7.000", "1"),
        # Rounded once, at the end.
        ("cpu", 1799, "0.000", "1"),
        ("cpu", 1800, "0.001", "1"),
        # Beyond what a number of 64 bits or a float could hold exactly.
        ("memory", (2**50 * 86_400 * 1000 + 1) * 2**10, "25769803776000.000", "Gi"),
    ],
)
def test_slot_hours_are_exact_until_they_are_shown(slot: str, amount_seconds: int, hours: str, unit: str):
    assert (slot_hours(slot, amount_seconds), hours_unit(slot)) == (hours, unit)
