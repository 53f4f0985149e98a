"""Between text and token ids: tokenizers, chat templates, streaming decoding, stop strings."""
