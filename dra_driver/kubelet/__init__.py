"""The edge towards the kubelet: sockets, registration, DRA and health services.

Nothing here may import anything slow: registration has to answer at once.
"""
