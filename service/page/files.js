// What can be taken home: the picture as shown, the counts as CSV or JSON, the zones.

import { paint } from "/page/heat.js";
import { middle, people } from "/page/zones.js";

const MAX_PIXELS = 16e6; // what phones still allow for a canvas

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

export function saveText(text, type, name) { save(new Blob([text], { type }), name); }

export function csv(name, answer) {
  const quote = (value) => (/[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  const range = answer.range ?? { low: "", high: "" };
  const rows = [["image", "area", "count", "low", "high"], [name, "whole image", answer.count, range.low, range.high]];
  for (const zone of answer.zones) rows.push([name, zone.name, zone.count, "", ""]);
  return rows.map((row) => row.map((value) => quote(String(value))).join(",")).join("\r\n") + "\r\n";
}

export function json(name, answer) {
  const { map, ...rest } = answer;
  return JSON.stringify({ image: name, ...rest }, null, 2) + "\n";
}

/** The view as it is on the screen, at the picture's own size, with zones and a line on the count. */
export async function png(shown, zones) {
  const { answer } = shown;
  const scale = Math.min(1, Math.sqrt(MAX_PIXELS / (answer.width * answer.height)));
  const width = Math.max(1, Math.round(answer.width * scale)), height = Math.max(1, Math.round(answer.height * scale));
  const text = Math.max(12, Math.min(64, width / 45));
  const canvas = new OffscreenCanvas(width, height + Math.ceil(text * 2.2));
  const context = canvas.getContext("2d");
  paint(context, width, shown);
  for (const zone of zones) drawZone(context, zone, width, height, text);
  context.fillStyle = "#18181c";
  context.fillRect(0, height, width, canvas.height - height);
  context.fillStyle = "#f0f0f0";
  context.font = `600 ${text}px system-ui, sans-serif`;
  context.textBaseline = "middle";
  context.fillText(caption(answer), text * 0.8, height + text * 1.15, width - text * 1.6);
  return canvas.convertToBlob({ type: "image/png" });
}

function caption(answer) {
  const range = answer.range ? `, range ${people(answer.range.low)} to ${people(answer.range.high)}` : "";
  return `${people(answer.count)} people${range}`;
}

function drawZone(context, zone, width, height, text) {
  const points = zone.corners.map(([x, y]) => [x * width, y * height]);
  context.beginPath();
  points.forEach(([x, y], index) => (index ? context.lineTo(x, y) : context.moveTo(x, y)));
  context.closePath();
  context.lineJoin = "round";
  for (const [colour, thickness] of [["#18181c", text / 3], ["#ffffff", text / 6]]) {
    context.strokeStyle = colour;
    context.lineWidth = thickness;
    context.stroke();
  }
  const [x, y] = middle(zone.corners);
  const label = zone.count === null ? zone.name : `${zone.name}: ${people(zone.count)}`;
  context.font = `600 ${text}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineWidth = text / 4;
  context.strokeStyle = "rgb(0 0 0 / 75%)";
  context.strokeText(label, x * width, y * height);
  context.fillStyle = "#ffffff";
  context.fillText(label, x * width, y * height);
  context.textAlign = "start";
}
