"""Version 1 of the standard gRPC health service."""
