// Live tiles: one a camera, with its latest count, its zones and the course of the last counts.

import { listen } from "/page/api.js";
import { people } from "/page/zones.js";

const SILENT_SECONDS = 60;
const KEPT = 90;
const section = document.getElementById("cameras");
const tiles = new Map();

export function watchCameras() {
  const live = document.getElementById("live");
  setInterval(showAges, 1000);
  return listen(show, (state) => { live.textContent = state; });
}

function show(camera) {
  section.hidden = false;
  let tile = tiles.get(camera.camera);
  if (!tile) {
    tile = make(camera.camera);
    tiles.set(camera.camera, tile);
    const after = [...tiles.keys()].filter((name) => name > camera.camera).sort()[0];
    document.getElementById("tiles").insertBefore(tile.root, after ? tiles.get(after).root : null);
  }
  tile.time = camera.time;
  tile.counts.push(camera.count);
  if (tile.counts.length > KEPT) tile.counts.shift();
  tile.number.textContent = people(camera.count);
  const range = camera.range;
  tile.range.textContent = range ? `${people(range.low)} to ${people(range.high)}` : "";
  tile.zones.replaceChildren(...camera.zones.flatMap((zone) => [text("dt", zone.name), text("dd", people(zone.count))]));
  drawCourse(tile);
  showAges();
}

function make(name) {
  const root = document.createElement("article");
  root.className = "tile";
  root.dataset.camera = name;
  const title = document.createElement("h3");
  const age = document.createElement("time");
  title.append(text("span", name), age);
  const number = text("div", "");
  number.className = "number";
  const range = text("div", "");
  range.className = "quiet";
  const canvas = document.createElement("canvas");
  const zones = document.createElement("dl");
  root.append(title, number, range, canvas, zones);
  return { root, age, number, range, canvas, zones, counts: [], time: 0 };
}

function text(name, content) {
  const made = document.createElement(name);
  made.textContent = content;
  return made;
}

function showAges() {
  const now = Date.now() / 1000;
  for (const tile of tiles.values()) {
    const seconds = Math.max(0, Math.round(now - tile.time));
    tile.age.textContent = seconds < 2 ? "now" : seconds < 120 ? `${seconds} s ago` : `${Math.round(seconds / 60)} min ago`;
    tile.root.classList.toggle("silent", seconds > SILENT_SECONDS);
  }
}

function drawCourse({ canvas, counts }) {
  canvas.hidden = counts.length < 2;
  if (canvas.hidden) return;
  const ratio = devicePixelRatio || 1;
  const width = (canvas.clientWidth || 220) * ratio, height = (canvas.clientHeight || 36) * ratio;
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const top = Math.max(...counts) * 1.1 || 1;
  const points = counts.map((count, index) => [width * index / (counts.length - 1), height * (1 - count / top)]);
  const accent = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  context.beginPath();
  points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.strokeStyle = accent;
  context.lineWidth = 1.8 * ratio;
  context.lineJoin = "round";
  context.stroke();
  context.lineTo(width, height);
  context.lineTo(0, height);
  context.globalAlpha = 0.14;
  context.fillStyle = accent;
  context.fill();
}
