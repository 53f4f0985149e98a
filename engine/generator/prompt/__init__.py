"""From a chat request to token ids: template, tools, and what fits into the context."""
