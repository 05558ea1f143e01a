"""Edge towards the kubelet: sockets, registration, the DRA and health services."""
