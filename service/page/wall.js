// The wall: a card per camera, with its latest picture, count, range, zones, and how it stands to its limits.

import { getBlob, get, listen } from "/page/api.js";
import { age, alertRow, at, cameraPath, countAlerts, make, showError, showLegend, showRows, standing, watchServer } from "/page/shared.js";
import { people, perSquareMetre } from "/page/zones.js";

const PICTURE_SECONDS = 2; // a card asks for a new picture at most so often
const cards = new Map();
const MOST_ALERTS = 8; // in the strip above the cards
let refreshing = null;

// Pictures are asked for where they can be seen: drawing those of hundreds of cameras would cost the server dear.
const sight = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    const card = cards.get(target.dataset.camera);
    if (!card) continue;
    card.inSight = isIntersecting;
    showPicture(card);
  }
}, { rootMargin: "200px" });

function show(camera) {
  let card = cards.get(camera.camera);
  if (!card) {
    card = makeCard(camera.camera);
    cards.set(camera.camera, card);
    const after = [...cards.keys()].filter((name) => name > camera.camera).sort()[0];
    at("tiles").insertBefore(card.root, after ? cards.get(after).root : null);
  }
  card.camera = camera;
  const [kind, words] = standing(camera);
  card.root.className = `camera ${kind}`;
  card.badge.className = `badge ${kind}`;
  card.badge.textContent = words;
  const range = camera.range ? ` ${people(camera.range.low)} to ${people(camera.range.high)}` : "";
  const last = camera.silent && camera.last_count !== null ? ` last ${people(camera.last_count)}` : "";
  card.number.replaceChildren(camera.count === null ? "–" : people(camera.count), make("small", range || last));
  card.zones.replaceChildren(...camera.zones.flatMap((zone) => [make("dt", zone.name), make("dd", zoneText(zone))]));
  if (camera.people_per_square_metre !== null) {
    card.zones.append(make("dt", "densest 10 m²"), make("dd", `${perSquareMetre(camera.people_per_square_metre)} per\u00a0m²`));
  }
  showPicture(card);
  summarise();
}

function zoneText(zone) {
  const density = zone.people_per_square_metre;
  return people(zone.count) + (density === null ? "" : ` (${perSquareMetre(density)} per\u00a0m²)`);
}

function makeCard(name) {
  const root = make("a");
  root.href = `/cameras/${encodeURIComponent(name)}`;
  root.dataset.camera = name;
  const shot = make("div", "", "shot");
  const image = make("img");
  image.alt = "";
  image.hidden = true;
  const nothing = make("span", "No picture");
  shot.append(image, nothing);
  const inside = make("div", "", "inside");
  const title = make("h2", name);
  const number = make("div", "", "number");
  const line = make("div", "", "line");
  const badge = make("span", "", "badge");
  const time = make("span", "", "quiet");
  const zones = make("dl");
  line.append(badge, time);
  inside.append(title, number, line, zones);
  root.append(shot, inside);
  sight.observe(root);
  return { root, image, nothing, number, badge, time, zones, shown: 0, asked: 0, inSight: false };
}

async function showPicture(card) {
  const { camera } = card;
  if (!camera.picture) {
    card.image.hidden = true;
    card.nothing.hidden = false;
    return;
  }
  const now = Date.now() / 1000;
  if (!card.inSight || camera.picture === card.shown || now - card.asked < PICTURE_SECONDS || document.hidden) return;
  card.asked = now;
  try {
    const blob = await getBlob(cameraPath(camera.camera, "/picture?view=heat"));
    const old = card.image.src;
    card.image.src = URL.createObjectURL(blob);
    if (old) URL.revokeObjectURL(old);
    card.shown = camera.picture;
    card.image.hidden = false;
    card.nothing.hidden = true;
  } catch {
    card.image.hidden = true; // it is gone: the camera was changed meanwhile
    card.nothing.hidden = false;
  }
}

function summarise() {
  const all = [...cards.values()].map((card) => standing(card.camera)[0]);
  const count = (kind) => all.filter((one) => one === kind).length;
  const parts = [`${all.length} ${all.length === 1 ? "camera" : "cameras"}`];
  if (count("bad")) parts.push(`${count("bad")} with an alert`);
  if (count("silent")) parts.push(`${count("silent")} silent`);
  const text = parts.join(", ");
  if (at("summary").textContent !== text) at("summary").textContent = text;
  at("empty").hidden = all.length > 0;
  const pictured = [...cards.values()].map((card) => card.camera).filter((camera) => camera.picture);
  const measured = pictured.filter((camera) => camera.people_per_square_metre !== null).length;
  at("wall-legend").hidden = pictured.length === 0;
  showLegend(at("wall-legend"), measured > 0, measured < pictured.length);
}

function showAges() {
  for (const card of cards.values()) {
    card.time.textContent = age(card.camera.last_time); // a camera without a frame says so in its badge
    showPicture(card);
  }
}

async function showAlerts() {
  const open = await countAlerts();
  if (!open) return;
  open.sort((one, other) => Boolean(one.acknowledged) - Boolean(other.acknowledged)); // else the newest stay first
  showRows(at("open-alerts"), open.slice(0, MOST_ALERTS), (alert) => alertRow(alert, showAlerts, true));
  at("more-alerts").hidden = open.length <= MOST_ALERTS;
  at("more-alerts").textContent = `and ${open.length - MOST_ALERTS} more`;
}

/** Events tell of counts alone; that a camera fell silent, and what was forgotten, is asked for. */
async function refresh() {
  if (refreshing) return;
  refreshing = true;
  try {
    const { cameras } = await get("/v1/cameras");
    const names = new Set(cameras.map((camera) => camera.camera));
    for (const [name, card] of cards) {
      if (!names.has(name)) {
        sight.unobserve(card.root);
        card.root.remove();
        cards.delete(name);
      }
    }
    cameras.forEach(show);
    summarise();
    await showAlerts();
  } catch (error) {
    if (error.status) showError(error.message);
  } finally {
    refreshing = null;
  }
}

at("error-close").addEventListener("click", () => showError(""));
refresh();
setInterval(showAges, 1000);
setInterval(refresh, 5000);
watchServer();
listen({ count: show, alert: showAlerts });
