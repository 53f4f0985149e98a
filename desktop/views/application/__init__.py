"""What concerns the program as a whole: log, error reports, backups, the system's menu."""
