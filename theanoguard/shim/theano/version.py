"""Which Theano this is: 1.0.5 in all that code asks for."""

short_version = "1.0.5"
version = full_version = "1.0.5+theanoguard"
git_revision = None
release = True
