"""The settings pane: forms made from settings classes, their editors, presets."""
