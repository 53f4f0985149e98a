"""What a reply was made from, as text, and the same reply generated again."""
