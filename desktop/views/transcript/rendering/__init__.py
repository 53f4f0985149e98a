"""From Markdown to documents: text, formulas, pictures, colours of code."""
