"""Calls of tools as grammars: whenever a model calls a tool, its name and arguments are as they must be."""
