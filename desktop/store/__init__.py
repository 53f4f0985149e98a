"""What is kept on disk, without Qt: conversations in SQLite, preferences in JSON."""
