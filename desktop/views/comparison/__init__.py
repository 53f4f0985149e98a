"""The page on which replies are compared, and the dialog that asks how they are to be written."""
