"""The Flower app that the tests deploy. In the second round every client is faulty, each in a different way."""

NODES = 4
CLIENTS = 5  # the last client has no node, so it never answers
FAULTY = 1  # number of completed rounds when the clients become faulty
