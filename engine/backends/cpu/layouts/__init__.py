"""The packed layouts of weights, one file each, and the table of them."""
