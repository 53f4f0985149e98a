"""What ends a reply, and what must not appear in it."""
