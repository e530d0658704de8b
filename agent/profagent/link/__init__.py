"""The way to a board: messages, the session's rules without I/O, and the gRPC channel around them."""
