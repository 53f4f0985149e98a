"""Drafting: the drafters of a generator, its draft model, and what one sequence drafts."""
