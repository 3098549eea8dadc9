"""A WebSocket to an API server whose messages begin with the number of a channel."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

from cloudrec.kubernetes.client.errors import ApiUnreachableError
from cloudrec_contract.readable import is_readable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_ERROR = 3


class ChannelSocket:
    """A WebSocket whose messages begin with a channel's number."""

    def __init__(self, made: Any) -> None:  # noqa: ANN401 - websocket-client's, which is not typed
        self._made = made
        self.is_v5 = made.subprotocol == V5

    def fileno(self) -> int:
        """Return the descriptor, for poll."""
        number: int = self._made.sock.fileno()
        return number

    @property
    def has_pending(self) -> bool:
        """Return whether data was read from the network that `poll` does not see."""
        made = self._made.sock
        return isinstance(made, ssl.SSLSocket) and made.pending() > 0

    def receive(self) -> tuple[int, bytes] | None:
        """Return the next message's channel and data; None at the end of the connection."""
        from websocket import ABNF, WebSocketException  # noqa: PLC0415 - comes with the extra

        while True:
            try:
                kind, frame = self._made.recv_data_frame(True)  # noqa: FBT003 - the parameter's only form
            except (WebSocketException, OSError):
                return None
            if kind == ABNF.OPCODE_CLOSE:
                return None
            if kind in (ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT) and frame.data:
                return frame.data[0], bytes(frame.data[1:])
            if not self.has_pending and not is_readable(self, timeout_s=0):
                return _ERROR, b""  # a ping, which was answered

    def send(self, channel: int, data: bytes) -> None:
        """Send one message; OSError if the connection is lost."""
        from websocket import WebSocketException  # noqa: PLC0415 - comes with the extra

        try:
            self._made.send_binary(bytes([channel]) + data)
        except WebSocketException as error:
            raise OSError(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._made.shutdown()


def opened(
    configuration: Any,  # noqa: ANN401 - the SDK's, which is not typed here
    url: str,
    *,
    host: str,
    protocols: Sequence[str],
    connect_s: float,
) -> Any:  # noqa: ANN401 - websocket-client's
    """Return a WebSocket after its handshake, with credentials and trust of the SDK's configuration."""
    from kubernetes.stream import ws_client  # noqa: PLC0415 - an extra
    from websocket import WebSocket  # noqa: PLC0415 - comes with the extra

    trust: dict[str, Any] = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    if configuration.verify_ssl:
        trust = {"cert_reqs": ssl.CERT_REQUIRED, "ca_certs": configuration.ssl_ca_cert}
        if configuration.assert_hostname is not None:
            trust["check_hostname"] = configuration.assert_hostname
    for name, value in (
        ("certfile", configuration.cert_file),
        ("keyfile", configuration.key_file),
        ("server_hostname", configuration.tls_server_name),
    ):
        if value:
            trust[name] = value
    headers: Mapping[str, Any] = configuration.auth_settings()
    header = [f"authorization: {each['value']}" for each in headers.values() if each.get("value")]
    options: dict[str, Any] = {"header": header, "subprotocols": list(protocols), "timeout": connect_s}
    if host:
        options["host"] = host
    if configuration.proxy or configuration.proxy_headers:
        options = ws_client.websocket_proxycare(options, configuration, url, None)
    made: Any = WebSocket(sslopt=trust, skip_utf8_validation=True, enable_multithread=False)
    made.connect(ws_client.get_websocket_url(url), **options)
    made.settimeout(None)
    return made


def unreachable(what: str, server: str, error: Exception) -> ApiUnreachableError:
    """Return the error for a WebSocket that could not be opened."""
    return ApiUnreachableError(
        f"cannot {what}: the API server {server} does not open a WebSocket: {error}",
        remedy="a proxy or a tunnel on the way must let WebSockets pass; `kubectl exec` has the same need",
    )
