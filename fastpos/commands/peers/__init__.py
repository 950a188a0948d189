"""What ``fastpos bench --against`` compares with: a table of peers, one process a peer, one file a library.

A new peer is one line in ``catalogue.py`` and one function from a ``Job`` to a ``Form`` in the file of its library.
"""
