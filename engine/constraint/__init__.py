"""Constraints: which tokens a reply may go on with, and texts it must not contain."""
