"""Google's Gemini API, below /v1beta and, as Google's Python client calls it, below /v1.

models                  the list of models, in this form for Google's clients only
request, schema         the body of a request as the engine's request
content                 the endpoints that write, count tokens and embed
candidate               one candidate while it is written
"""
