"""The window's frame: panes, the order of the keyboard, distances, what is dropped and what is closed."""
