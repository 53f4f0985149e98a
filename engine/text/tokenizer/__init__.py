"""Text to token ids and back, for every published tokenizer format."""
