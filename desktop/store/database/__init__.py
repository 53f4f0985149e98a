"""The SQLite file: opened, migrated, locked, recovered."""
