"""From a model to a stream of text: one sequence's cache, prompt, loop and stops."""
