"""The database layer: engine, batch statements, column types, schema and migrations.

Imports the model and the table definitions; every other package of the store builds on it.
"""
