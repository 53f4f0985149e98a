"""Folders of safetensors files with a config.json."""
