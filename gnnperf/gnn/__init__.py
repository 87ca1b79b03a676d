"""The graph neural network: data, model, training, checkpoint, evaluation, intervals."""
