"""What is stored on disk, without Qt: conversations in SQLite, preferences in JSON."""
