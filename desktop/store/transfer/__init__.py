"""Import and export: conversations as files of this program and of others."""
