"""The MPS supervisor: keeps the shares of GPUs as they are desired, and its gRPC service."""
