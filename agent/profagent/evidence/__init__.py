"""What somebody with a board sends so that open facts are settled: bytes in, bytes out; opens nothing."""
