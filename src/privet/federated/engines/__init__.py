"""How a simulation trains the clients of a round: sequentially, batched, or in worker processes."""
