"""What layers add to a row, and how, where that is more than a sum: streams, gates, further embeddings."""
