"""What replies were made from."""
