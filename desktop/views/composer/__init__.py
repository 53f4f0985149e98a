"""Where messages are written: the box, files, the queue, saved prompts."""
