"""What was computed once and may vanish."""
