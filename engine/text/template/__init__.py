"""Chat templates: from a conversation to the text that a model was trained on, and the tags of its
reasoning.
"""
