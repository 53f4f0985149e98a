"""OpenAI's Chat Completions and models; and messages, parameters and tools as other APIs, too, have them.

chat, models            the endpoints
conversation            the messages of a request
parameters, formats     settings, and the format of the reply
tools, custom           the tools that are offered, and the calls of a reply
"""
