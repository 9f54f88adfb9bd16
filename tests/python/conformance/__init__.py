"""One suite for each protocol. Each takes any producer and says by name what deviates."""
