"""The user's settings, presets and saved prompts."""
