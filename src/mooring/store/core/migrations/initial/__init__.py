"""The parts of the initial migration: tables by subject, triggers and views.

They state the schema of the first release and never change again; later changes are migrations of their own.
"""
