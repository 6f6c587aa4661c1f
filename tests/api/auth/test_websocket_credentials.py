"""The credential of a WebSocket from a browser, which cannot set headers."""

from mooring.api.middleware.flows import authorization

OFFERED = ["mooring.channel", "mooring.bearer.abc.def"]


def test_a_websocket_shows_its_token_as_a_subprotocol():
    assert authorization({"type": "websocket", "headers": [], "subprotocols": OFFERED}) == b"Bearer abc.def"
    assert authorization({"type": "websocket", "headers": [], "subprotocols": OFFERED[:1]}) == b""


def test_a_header_takes_precedence_over_a_subprotocol():
    headers = [(b"authorization", b"Basic xyz")]
    assert authorization({"type": "websocket", "headers": headers, "subprotocols": OFFERED}) == b"Basic xyz"


def test_a_request_has_no_token_in_a_subprotocol():
    headers = [(b"sec-websocket-protocol", b"mooring.bearer.abc.def")]
    assert authorization({"type": "http", "headers": headers}) == b""
