"""A live stream for tests: motion JPEG over HTTP, as many network cameras send it, from a plain Python server."""

import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from support.servers import encoded
from support.videos import numbered


class CameraStream:
    """Sends numbered frames, over and over; can be cut off and brought back on the same address."""

    def __init__(self, frames_per_second: float = 50.0) -> None:
        self.pause_seconds = 1 / frames_per_second
        self.frames = [encoded(numbered(number), "JPEG") for number in range(20)]
        self.silent = threading.Event()
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self._connections: list[socket.socket] = []
        self.start()
        self.url = f"http://127.0.0.1:{self.port}/stream"

    def start(self) -> None:
        camera = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                camera._connections.append(self.connection)
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
                self.end_headers()
                with suppress(OSError):  # cut off, or the reader went away
                    camera._send(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            allow_reuse_address = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def cut(self) -> None:
        """As if the plug were pulled: connections break, and nobody listens any more."""
        if self._server is None:
            return
        self._server.shutdown()
        self._server.socket.close()
        for connection in self._connections:
            with suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        self._server, self._connections = None, []

    def _send(self, handler: BaseHTTPRequestHandler) -> None:
        number = 0
        while True:
            if not self.silent.is_set():
                frame = self.frames[number % len(self.frames)]
                head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(frame)}\r\n\r\n"
                handler.wfile.write(head.encode() + frame + b"\r\n")
                number += 1
            time.sleep(self.pause_seconds)
