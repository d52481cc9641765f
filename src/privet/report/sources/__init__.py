"""Where the facts of a report come from: one file per kind of model, which reads only what the model publishes."""
