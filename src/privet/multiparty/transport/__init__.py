"""How parties reach each other: the network, the handshake, and the connection with one other party."""
