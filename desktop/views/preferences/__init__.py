"""The Preferences window: the settings of the program, which belong to no chat and no model."""
