"""LM Studio's WebSocket API, which its SDKs for Python and JavaScript speak: a connection for each namespace.

    connection   one connection: the key, the messages, and the calls and channels that run on it
    namespaces   the calls and channels of each namespace
    models       models as LM Studio describes them, found by a query, and loading them
    settings     the settings of a prediction and its messages, under the names of OpenAI's API
    prediction   a reply or a text while it is written
    trouble      failures as LM Studio's SDKs read them

A client sends its identifier and passkey first. Then it makes calls, each with one answer, and opens
channels, which carry packets until either side ends them.

Source: the interfaces of LM Studio's SDK for JavaScript (github.com/lmstudio-ai/lmstudio-js, packages
`lms-communication`, `lms-external-backend-interfaces`, `lms-kv-config` and `lms-shared-types`).
"""
