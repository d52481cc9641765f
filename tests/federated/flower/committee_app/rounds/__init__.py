"""The Flower app whose clients hand in their updates to a committee of servers."""
