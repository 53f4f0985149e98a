"""The centre of the window around the transcript: status, context, statistics, details of a reply."""
