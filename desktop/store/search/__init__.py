"""Full-text search of messages: folding, the word index, and queries."""
