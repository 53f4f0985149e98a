"""Calls of tools: how a model writes them, found from its chat template; reading them while a reply grows;
writing messages with calls and results for the template.
"""
