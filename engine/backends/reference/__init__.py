"""The oracle of the other backends: every operation in plain torch, float32, one readable line a formula."""
