"""The program as a whole: log, error reports, backups, the system's menu."""
