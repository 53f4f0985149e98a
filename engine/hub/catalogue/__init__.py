"""What a hub offers: search, the files of a model, and the choices that fit the machine."""
