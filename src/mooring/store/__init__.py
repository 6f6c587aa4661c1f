"""The state of record: tables, migrations and one repository per noun, on SQLite and PostgreSQL. All SQL lives here.

Repositories are free functions over a connection; the caller owns the transaction (see `engine.Database`).
Imports model only.
"""
