"""Caches on disk: results that can be computed again."""
