"""What happens behind the views, with QtCore only: the session, threads, downloads, the search for models."""
