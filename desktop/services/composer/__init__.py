"""Writing a message: attached files, the queue, saved prompts, saving of notebooks."""
