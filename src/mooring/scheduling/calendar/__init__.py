"""The time axis: timeline, reservations, backfill, planned starts and start estimates."""
