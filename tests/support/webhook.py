"""A web server that takes alerts, as the receiver of a webhook does."""

import json
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Receiver:
    """A web server that notes what it gets; refuses while `status` is not 200; `endless` answers go on and on."""

    def __init__(self) -> None:
        self.status = 200
        self.endless = False
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.refused = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if receiver.status == 200:
                    receiver.taken.append((dict(self.headers), body))
                else:
                    receiver.refused += 1
                self.send_response(receiver.status)
                self.end_headers()
                with suppress(OSError):
                    while receiver.endless:
                        self.wfile.write(bytes(1000))
                        time.sleep(0.01)

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook?token=in-the-address"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def events(self) -> list[str]:
        return [json.loads(body)["event"] for _, body in self.taken]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
