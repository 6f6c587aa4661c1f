"""The state of record on SQLite and PostgreSQL, one package per subject. All SQL is here.

Store functions take a connection; their caller owns the transaction (see `store.core.engine.Database`). The store
imports the model, and no package that uses it.
"""
