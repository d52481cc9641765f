"""The app that the tests deploy: its clients fail in the third round, each in a way of its own."""
