"""Counts and alerts on an MQTT broker, and the announcements by which Home Assistant finds them.

| topic | kept | what |
|---|---|---|
| TOPIC/status | yes | online or offline |
| TOPIC/cameras/NAME/state | yes | JSON: people, low, high, people_per_square_metre, zones by name, time |
| TOPIC/cameras/NAME/alert | yes | ON while an alert of the camera is open, else OFF |
| TOPIC/alerts | no | each alert message as JSON, at least once |

The numbers of a silent camera are null. What is kept on the broker is sent again after each new connection: meanwhile
it may have grown old there, or been lost.
"""

import hashlib
import json
import logging
import threading
import time
from collections import OrderedDict
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from uepnet import __version__
from uepnet.model.camera_file import Mqtt
from uepnet.service.cameras.delivery import MAX_WAITING, Delivery, Outbox
from uepnet.service.cameras.wire import AlertMessage
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import Camera

MIN_STATE_SECONDS = 1.0  # a camera's state is sent at most so often

log = logging.getLogger(__name__)


class MqttPublisher:
    """`show` and `send` return at once; paho's thread talks to the broker and reconnects for ever."""

    receiver = "mqtt"

    def __init__(self, settings: Mqtt, password: str | None, outbox: Outbox, metrics: Metrics) -> None:
        self._settings, self._outbox, self._metrics = settings, outbox, metrics
        self._lock = threading.RLock()
        self._pending: OrderedDict[str, Delivery] = OrderedDict()
        self._sent: dict[int, str] = {}  # message number of the connection -> id of the delivery
        self._publishing = 0  # deliveries that paho is being given, whose numbers are not known yet
        self._early: set[int] = set()  # numbers that the broker has acknowledged meanwhile
        self._announced: dict[str, tuple[str, ...]] = {}
        self._shown: dict[str, float] = {}
        self._kept: dict[str, str] = {}  # topic -> what the broker should hold for it
        self._failing = False
        self._stopping = False
        self._client = client = paho.Client(CallbackAPIVersion.VERSION2, client_id="")
        if settings.username is not None:
            client.username_pw_set(settings.username, password)
        if settings.tls:
            client.tls_set()
        client.will_set(f"{settings.topic}/status", "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 30)
        client.on_connect, client.on_disconnect = self._connected, self._disconnected
        client.on_connect_fail, client.on_publish = self._not_connected, self._published
        client.on_message = self._status_heard
        client.connect_async(settings.host, settings.port)
        client.loop_start()

    def show(self, camera: Camera) -> None:
        now = time.monotonic()
        if now - self._shown.get(camera.camera, -10.0) < MIN_STATE_SECONDS:
            return
        self._shown[camera.camera] = now
        zones = tuple(zone.name for zone in camera.zones)
        if self._settings.home_assistant and self._announced.get(camera.camera) != zones:
            self._announce(camera.camera, zones)
        self._keep(self._topic(camera.camera, "state"), json.dumps(_state(camera)))

    def show_silent(self, camera: Camera) -> None:
        """The last count of a silent camera must not stay on the broker as if it were true."""
        self._keep(self._topic(camera.camera, "state"), json.dumps(_silent_state(camera)))

    def show_alert(self, camera: str, alerting: bool) -> None:
        self._keep(self._topic(camera, "alert"), "ON" if alerting else "OFF")

    def forget(self, camera: str) -> None:
        """A camera that is no longer remembered leaves the broker, too."""
        with self._lock:
            self._announced.pop(camera, None)
            self._shown.pop(camera, None)
            mine = (f"{self._settings.topic}/cameras/{camera}/", f"uepnet_{_slug(camera)}_")
            for topic in [topic for topic in self._kept if any(part in topic for part in mine)]:
                del self._kept[topic]
                self._client.publish(topic, "", retain=True)

    def send(self, message: AlertMessage) -> None:
        delivery = Delivery(self.receiver, message.model_dump_json(), message.id, time.time())
        self._outbox.add(delivery, self.take_up)

    def take_up(self, delivery: Delivery) -> None:
        with self._lock:
            self._pending[delivery.id] = delivery
            if len(self._pending) > MAX_WAITING:
                _, dropped = self._pending.popitem(last=False)
                self._metrics.deliveries.labels("dropped").inc()
                self._outbox.done(dropped)
        if self._client.is_connected():
            self._publish(delivery)

    def stop(self) -> None:
        self._stopping = True
        if self._client.is_connected():
            done = self._client.publish(f"{self._settings.topic}/status", "offline", qos=1, retain=True)
            try:
                done.wait_for_publish(2.0)
            except RuntimeError:
                log.debug("the broker left before the end")
        self._client.disconnect()
        self._client.loop_stop()

    def _keep(self, topic: str, content: str) -> None:
        with self._lock:
            known, self._kept[topic] = self._kept.get(topic), content
            if content != known and self._client.is_connected():
                self._client.publish(topic, content, retain=True)

    def _publish(self, delivery: Delivery) -> None:
        """Without the lock: paho calls `_published` under a lock of its own, which this needs, too."""
        with self._lock:
            self._publishing += 1
        info = self._client.publish(f"{self._settings.topic}/alerts", delivery.message, qos=1)
        with self._lock:
            self._publishing -= 1
            self._sent[info.mid] = delivery.id
            taken = info.mid in self._early
            if not self._publishing:
                self._early.clear()
        if taken:
            self._settle(info.mid)

    def _topic(self, camera: str, what: str) -> str:
        return f"{self._settings.topic}/cameras/{camera}/{what}"

    def _announce(self, camera: str, zones: tuple[str, ...]) -> None:
        """Home Assistant's discovery: a sensor for the people of the frame and of each zone, one for alerts."""
        state = self._topic(camera, "state")
        device = {"identifiers": [f"uepnet_{_slug(camera)}"], "name": camera, "manufacturer": "uepnet"}
        shared = {
            "device": device | {"sw_version": __version__},
            "availability_topic": f"{self._settings.topic}/status",
        }
        people = {"state_topic": state, "unit_of_measurement": "people", "state_class": "measurement", **shared}
        sensors: dict[tuple[str, str], dict[str, Any]] = {
            ("sensor", "people"): {"name": "People", "value_template": "{{ value_json.people }}", **people},
            ("binary_sensor", "alert"): {
                "name": "Crowd alert",
                "state_topic": self._topic(camera, "alert"),
                "device_class": "problem",
                **shared,
            },
        }
        for zone in zones:
            template = f"{{{{ value_json.zones[{json.dumps(zone)}] }}}}"
            sensors["sensor", f"zone_{_slug(zone)}"] = {"name": f"People {zone}", "value_template": template, **people}
        for (kind, what), content in sensors.items():
            unique = f"uepnet_{_slug(camera)}_{what}"
            self._keep(f"homeassistant/{kind}/{unique}/config", json.dumps({**content, "unique_id": unique}))
        self._announced[camera] = zones

    def _connected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._not_connected(client, data, str(reason))
            return
        log.info("connected to the MQTT broker %s", self._settings.host)
        self._failing = False
        client.subscribe(f"{self._settings.topic}/status", qos=1)
        client.publish(f"{self._settings.topic}/status", "online", qos=1, retain=True)
        with self._lock:
            for topic, content in self._kept.items():
                client.publish(topic, content, retain=True)
            under_way = set(self._sent.values())  # paho sends these again by itself
            waiting = [delivery for delivery in self._pending.values() if delivery.id not in under_way]
        for delivery in waiting:
            self._publish(delivery)

    def _status_heard(self, client: Any, data: Any, message: Any) -> None:
        """The last words of another replica: the service is online as long as one of them is."""
        if message.payload != b"online" and not self._stopping:
            client.publish(f"{self._settings.topic}/status", "online", qos=1, retain=True)

    def _disconnected(self, client: Any, data: Any, flags: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            self._not_connected(client, data, str(reason))

    def _not_connected(self, client: Any, data: Any, reason: str = "no connection") -> None:
        if not self._failing:
            log.warning("the MQTT broker %s cannot be reached (%s); trying again", self._settings.host, reason)
        self._failing = True

    def _published(self, client: Any, data: Any, number: int, reason: Any, properties: Any) -> None:
        with self._lock:
            if self._publishing and number not in self._sent:
                self._early.add(number)
        self._settle(number)

    def _settle(self, number: int) -> None:
        with self._lock:
            delivery = self._pending.pop(self._sent.pop(number, ""), None)
        if delivery is not None:
            self._metrics.deliveries.labels("delivered").inc()
            self._outbox.done(delivery)


def _state(camera: Camera) -> dict[str, Any]:
    bounds = camera.range
    return {
        "people": round(camera.count, 1),
        "low": None if bounds is None else round(bounds.low, 1),
        "high": None if bounds is None else round(bounds.high, 1),
        "people_per_square_metre": camera.people_per_square_metre,
        "zones": {zone.name: round(zone.count, 1) for zone in camera.zones},
        "time": camera.time,
    }


def _silent_state(camera: Camera) -> dict[str, Any]:
    known = _state(camera)
    return dict.fromkeys(known) | {"zones": dict.fromkeys(known["zones"]), "time": camera.time}


def _slug(name: str) -> str:
    """Home Assistant's ids allow few letters; a hash stands for any name."""
    return hashlib.sha256(name.encode()).hexdigest()[:10]
