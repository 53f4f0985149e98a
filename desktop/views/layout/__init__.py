"""The window's frame: panes, focus, spacing, dropped files, closing."""
