"""Requests to a Kubernetes API server as plain JSON, which keeps fields that models do not know."""

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]


class ApiError(Exception):
    """An answer other than 2xx: HTTP status, Kubernetes' reason (may be empty) and message."""

    def __init__(self, status: int, *, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One identity at one API server, whose certificate is verified against ``ca_file``.

    Paths are the API's own, such as ``/apis/resource.k8s.io/v1/resourceslices``; keyword arguments
    become query parameters, such as ``dryRun="All"``. All but 2xx answers raise ApiError; a server
    that is not there raises OSError.
    """

    url: str
    token: str
    ca_file: Path
    timeout_s: float = 30.0
    _tls: ssl.SSLContext = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tls", ssl.create_default_context(cafile=str(self.ca_file)))

    def get(self, path: str, **query: str) -> Json:
        return self.request("GET", path, query=query)

    def list(self, path: str, **query: str) -> tuple[Json, ...]:
        """Give the items, in the order of the server: by namespace and name."""
        return tuple(self.request("GET", path, query=query)["items"])

    def create(self, path: str, body: Json, **query: str) -> Json:
        return self.request("POST", path, body=body, query=query)

    def replace(self, path: str, body: Json, **query: str) -> Json:
        return self.request("PUT", path, body=body, query=query)

    def patch(self, path: str, body: Json, **query: str) -> Json:
        """Merge ``body`` into the object (RFC 7396); a value of None removes the field."""
        return self.request(
            "PATCH", path, body=body, query=query, content_type="application/merge-patch+json"
        )

    def delete(self, path: str, **query: str) -> Json:
        """Delete one object, or a collection where the path names one."""
        return self.request("DELETE", path, query=query)

    def apply(self, manifest: Json, **query: str) -> Json:
        """Create or update an object of any kind from its manifest, by server-side apply.

        A namespaced object without a namespace goes to ``default``.
        """
        path = self._path_of(manifest)
        return self.request(
            "PATCH",
            path,
            body=manifest,
            query={"fieldManager": "tests", "force": "true", **query},
            content_type="application/apply-patch+yaml",
        )

    def text(self, path: str, **query: str) -> str:
        """Read what is not JSON, such as ``/readyz`` and ``/metrics``."""
        return self._send(self._request("GET", path, query=query)).decode()

    def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | None = None,
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Json:
        request = self._request(method, path, query=query or {})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", content_type)
        answer: Json = json.loads(self._send(request))
        return answer

    def _request(self, method: str, path: str, *, query: dict[str, str]) -> urllib.request.Request:
        url = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        return urllib.request.Request(
            url, method=method, headers={"Authorization": f"Bearer {self.token}"}
        )

    def _send(self, request: urllib.request.Request) -> bytes:
        # An opener of its own: a proxy from the environment is none of the loopback's business.
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._tls)
        )
        try:
            with opener.open(request, timeout=self.timeout_s) as response:
                answer: bytes = response.read()
                return answer
        except urllib.error.HTTPError as error:
            with error:
                raise _api_error(error.code, error.read().decode(errors="replace")) from None

    def _path_of(self, manifest: Json) -> str:
        version, kind = manifest["apiVersion"], manifest["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        for resource in self.get(root)["resources"]:
            if resource["kind"] == kind and "/" not in resource["name"]:
                break
        else:
            raise ApiError(404, reason="NoKindMatch", message=f"no {kind} in {version}")
        metadata = manifest["metadata"]
        if resource["namespaced"]:
            root += f"/namespaces/{metadata.get('namespace', 'default')}"
        return f"{root}/{resource['name']}/{metadata['name']}"


def _api_error(status: int, text: str) -> ApiError:
    try:
        answer = json.loads(text)
    except ValueError:
        return ApiError(status, reason="", message=text)
    return ApiError(status, reason=answer.get("reason", ""), message=answer.get("message", text))


def write_kubeconfig(path: Path, client: Client) -> Path:
    """Write a kubeconfig (0600) for the client's identity that verifies the server's certificate."""
    cluster = {"server": client.url, "certificate-authority": str(client.ca_file)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": {"token": client.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
