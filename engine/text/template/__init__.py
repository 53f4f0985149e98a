"""Chat templates, which format a conversation as the model was trained on it, and the tags of reasoning."""
