"""An RTSP server as a network camera is one, in H.264. For Debian's own Python and GStreamer:

/usr/bin/python3 rtsp_server.py PORT           a test picture
/usr/bin/python3 rtsp_server.py PORT FOLDER    the pictures 000.jpg, 001.jpg, ... of a folder, one a second, for ever
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

TEST_PICTURE = "videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240,framerate=25/1"
PICTURES = (
    "multifilesrc location={folder}/%03d.jpg loop=true caps=image/jpeg,framerate=1/1 ! jpegdec ! videoconvert"
    " ! videorate ! video/x-raw,format=I420,framerate=5/1"
)
ENCODED = " ! x264enc tune=zerolatency key-int-max=25 ! rtph264pay name=pay0 pt=96 config-interval=1"


def main(port: str, folder: str | None = None) -> None:
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    source = TEST_PICTURE if folder is None else PICTURES.format(folder=folder)
    factory.set_launch(f"( {source}{ENCODED} )")
    factory.set_shared(True)
    server.get_mount_points().add_factory("/camera", factory)
    server.attach(None)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    GLib.MainLoop().run()


if __name__ == "__main__":
    main(*sys.argv[1:])
