"""What a hub offers: search, the files of a model, and the choice that fits a machine."""
