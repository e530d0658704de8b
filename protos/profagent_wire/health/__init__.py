"""The standard gRPC health service."""
