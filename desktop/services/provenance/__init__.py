"""What a reply was made from, and the same reply made again."""
