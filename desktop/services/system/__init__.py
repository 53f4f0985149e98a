"""Backups, notifications, memory, helper processes: the program and the system it runs on.

README.md in this folder tells how the engine stays fast beside the window.
"""
