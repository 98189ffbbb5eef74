"""What Theano 1.0.5 keeps in ``theano.sandbox``, as far as it needs no GPU."""
