"""Where a setting's value comes from, presets, and checks while the user types."""
