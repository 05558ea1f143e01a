"""Command lines of etcd and kube-apiserver, for a control plane alone and for a whole cluster."""

from pathlib import Path

from tests.kube.profiles import Profile


def etcd_flags(data: Path, *, url: str, peer_url: str) -> tuple[str, ...]:
    return (
        f"--data-dir={data}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer_url}",
        f"--initial-advertise-peer-urls={peer_url}",
        f"--initial-cluster=default={peer_url}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def api_server_flags(
    folder: Path, profile: Profile, *, etcd_url: str, address: str, port: int, service_range: str
) -> tuple[str, ...]:
    """Give the flags of a server that keeps its certificate in ``folder``.

    The tokens and keys of ``identities`` lie there too.
    """
    key = folder / "service-account.key"
    return (
        f"--etcd-servers={etcd_url}",
        f"--bind-address={address}",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certs'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        f"--service-cluster-ip-range={service_range}",
        # Nobody reaches this server through the endpoints of its Service.
        "--endpoint-reconciler-type=none",
        f"--advertise-address={address}",
        *profile.flags(),
    )
