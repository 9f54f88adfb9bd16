"""Real libraries that are too large for the ordinary tests; run by `make test-peers`, each in an environment of its own."""
