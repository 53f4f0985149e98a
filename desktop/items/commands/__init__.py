"""What the command palette and slash commands offer."""
