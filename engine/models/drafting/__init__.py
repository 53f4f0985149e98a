"""What drafts for a model and reads its hidden states: heads for multi-token prediction, and assistants."""
