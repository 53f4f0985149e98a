"""Device, memory and drafting in the settings pane."""
