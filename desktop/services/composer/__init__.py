"""What helps to write a message: files, the queue, saved prompts."""
