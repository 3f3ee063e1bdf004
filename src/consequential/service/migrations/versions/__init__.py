"""Versions of the tables, one module each."""
