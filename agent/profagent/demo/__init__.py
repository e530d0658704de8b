"""The whole way without a board."""
