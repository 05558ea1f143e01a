"""Users of a test cluster's API server, known by static tokens, and the keys it signs with."""

import base64
import secrets
import subprocess
from collections.abc import Mapping
from pathlib import Path

ADMIN = {"admin": ("admin", "system:masters")}
"""File name → user and group; RBAC does not bind this one."""

API_SERVER = "kube-apiserver-kubelet-client"
"""What the API server's user is called where it asks a kubelet; kubeadm calls it so."""


def write_identities(folder: Path, users: Mapping[str, tuple[str, str]] = ADMIN) -> None:
    """Write ``tokens.csv``, a ``<file name>.token`` for each user, and ``service-account.key``.

    ``users`` maps file names to user and group; a group may be empty.
    """
    lines = []
    for name, (user, group) in users.items():
        token = secrets.token_hex(16)
        _write_secret(folder / f"{name}.token", token)
        lines.append(f'{token},{user},{name},"{group}"\n')
    _write_secret(folder / "tokens.csv", "".join(lines))
    _write_secret(folder / "service-account.key", _ec_private_key_pem())


def cluster_users(node_name: str) -> dict[str, tuple[str, str]]:
    """Give the users of a whole cluster with one node, as `write_identities` takes them."""
    return {
        **ADMIN,
        "controller-manager": ("system:kube-controller-manager", ""),
        "scheduler": ("system:kube-scheduler", ""),
        "kubelet": (f"system:node:{node_name}", "system:nodes"),
    }


def write_kubelet_client_certificate(folder: Path) -> None:
    """Write ``kubelet-client.crt`` and ``.key``: what the API server shows to kubelets.

    The certificate is its own authority. RBAC decides what its user may do on a node.
    """
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "365"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-subj", f"/CN={API_SERVER}"),
            *("-addext", "extendedKeyUsage=clientAuth"),
            *("-keyout", str(folder / "kubelet-client.key")),
            *("-out", str(folder / "kubelet-client.crt")),
        ],
        check=True,
        capture_output=True,
    )


def _write_secret(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _ec_private_key_pem() -> str:
    """Make a key on the curve P-256 as RFC 5915 writes it, without the optional public part."""
    scalar = secrets.randbelow(1 << 255).to_bytes(32, "big")
    curve = bytes.fromhex("a00a06082a8648ce3d030107")
    der = bytes.fromhex("30310201010420") + scalar + curve
    return (
        "-----BEGIN EC PRIVATE KEY-----\n"
        f"{base64.b64encode(der).decode()}\n"
        "-----END EC PRIVATE KEY-----\n"
    )
