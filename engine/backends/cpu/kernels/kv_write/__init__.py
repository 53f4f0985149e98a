"""Writing keys and values into the paged KV cache."""
