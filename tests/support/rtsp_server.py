"""An RTSP server with a test picture in H.264, as a network camera sends it. For Debian's own Python and GStreamer:

/usr/bin/python3 rtsp_server.py PORT
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

PIPELINE = (
    "( videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240,framerate=25/1"
    " ! x264enc tune=zerolatency key-int-max=25 ! rtph264pay name=pay0 pt=96 config-interval=1 )"
)


def main(port: str) -> None:
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(PIPELINE)
    factory.set_shared(True)
    server.get_mount_points().add_factory("/camera", factory)
    server.attach(None)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    GLib.MainLoop().run()


if __name__ == "__main__":
    main(sys.argv[1])
