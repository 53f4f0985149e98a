"""Qt item models over plain data: what the lists of the window show."""
