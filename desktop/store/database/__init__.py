"""The SQLite file of conversations: opening, migrating, locking, checking and recovering it."""
