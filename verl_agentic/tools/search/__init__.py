"""Search for the policy: passages of a corpus, from an index in this process or from a server.

`retriever` is the interface. `local_retriever` uses an index in this process (`bm25`, `dense`), `http_retriever` a
server with Search-R1's contract. `search_tool` is the policy's tool, and `search_server` serves a retriever.
"""
