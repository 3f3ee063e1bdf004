"""Migrations: how a database comes to have the tables of this version."""
