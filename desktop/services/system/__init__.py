"""Backups, notifications, memory and processes: what the system and the program owe each other."""
