"""Text to token ids and back, from every form that a tokenizer is published in."""
