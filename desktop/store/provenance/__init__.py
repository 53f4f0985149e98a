"""What replies were made from: the data, and where it is stored."""
