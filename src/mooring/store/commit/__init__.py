"""The writes of one transaction: statuses, ledger rows, counters, holds, history and events.

Only this package changes the ledger and the status of a task; purging and the repair are the named exceptions (see
`tests/store/commit/test_single_writer.py`).
"""
