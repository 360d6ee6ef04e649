// What all pages of the control room share: states in words, ages, errors, the number of open alerts.

import { get, onTrouble, post, serverNow } from "/page/api.js";

export const at = (id) => document.getElementById(id);

/** An element with a text, and a class where one is given. */
export function make(name, text = "", kind = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

export function showError(text) {
  at("error-text").textContent = text;
  at("error").hidden = !text;
  if (text) at("error").scrollIntoView({ block: "nearest" });
}

/** Say that the server is lost, and mark what is shown as old. */
export function watchServer() {
  onTrouble((text) => {
    if (at("lost-text").textContent !== text) at("lost-text").textContent = text;
    at("lost").hidden = !text;
    document.body.classList.toggle("is-lost", Boolean(text));
  });
}

/** How a camera stands: [class, words]. Colours are never alone. */
export function standing(camera) {
  if (camera.silent) return ["silent", camera.last_time ? "Silent" : "No frame yet"];
  const of = (state) => camera.limits.filter((limit) => limit.state === state);
  // An alert goes on below its limit for a while, and the count runs ahead of its median: words must fit the number shown.
  const over = of("alert").find((limit) => limit.value >= limit.limit && now(camera, limit) >= limit.limit);
  if (over) return ["bad", `Above the limit of ${amount(over)}`];
  if (of("alert").length) return ["bad", `Alert, now below the limit of ${amount(of("alert")[0])}`];
  if (camera.alerts) return ["bad", "Needs attention"];
  const share = Math.max(0, ...camera.limits.map((limit) => (limit.value ?? 0) / limit.limit));
  if (of("reached").length) return ["near", `Limit of ${amount(of("reached")[0])} reached`];
  if (share >= 0.9) return ["near", "Near a limit"];
  return camera.limits.length ? ["ok", "Below all limits"] : ["", "No limits"];
}

/** What the last frame says of a limit's value, without smoothing. */
function now(camera, { kind, zone }) {
  const counted = zone ? camera.zones.find((one) => one.name === zone) : camera;
  return (kind === "people" ? counted?.count : counted?.people_per_square_metre) ?? 0;
}

function amount({ kind, limit, zone }) {
  return `${limit}${kind === "people" ? "" : " per m²"}${zone ? ` in ${zone}` : ""}`;
}

export function age(time) {
  if (!time) return "";
  const seconds = Math.max(0, Math.round(serverNow() / 1000 - time));
  if (seconds < 2) return "now";
  if (seconds < 120) return `${seconds} s ago`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

export function clock(time) {
  return new Date(1000 * time).toLocaleString([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

export function cameraPath(name, more = "") { return `/v1/cameras/${encodeURIComponent(name)}${more}`; }

/** The open alerts, whose number is shown; null where they cannot be asked for. */
export async function countAlerts() {
  try {
    const { open } = await get("/v1/alerts");
    showAlertNumber(open);
    return open;
  } catch {
    return null; // the page says already that the server is lost, or that it wants a key
  }
}

export function showAlertNumber(open) {
  const fresh = open.filter((alert) => !alert.acknowledged).length;
  at("alert-number").textContent = fresh;
  at("alert-number").hidden = !fresh;
  const title = document.title.replace(/^\(\d+\) /, "");
  document.title = fresh ? `(${fresh}) ${title}` : title; // seen in a tab behind others, too
}

/** A row for each item {id}; the row of an item that has not changed stays the same element, so that it keeps the focus. */
export function showRows(list, items, makeRow) {
  const old = new Map([...list.children].map((row) => [row.dataset.id, row]));
  let focused = null;
  const rows = items.map((item) => {
    const content = JSON.stringify(item);
    const known = old.get(item.id);
    if (known?.dataset.content === content) return known;
    const row = makeRow(item);
    Object.assign(row.dataset, { id: item.id, content });
    if (known?.contains(document.activeElement)) focused = row;
    return row;
  });
  const gone = [...list.children].findIndex((row) => !rows.includes(row) && row.contains(document.activeElement));
  for (const row of old.values()) if (!rows.includes(row)) row.remove();
  rows.forEach((row, index) => { if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null); });
  if (focused) focused.querySelector("button, a")?.focus();
  // In the place of a row that is gone: its link, since a key may be on its way to the button that was there.
  else if (gone >= 0) (rows[gone] ?? rows.at(-1))?.querySelector("a")?.focus();
}

/** An open alert, with its text as a link to its camera or, on the camera's own page, as plain text. */
export function alertRow(alert, done, linked) {
  const row = make("li", "", alert.acknowledged ? "seen" : "");
  const text = make(linked ? "a" : "p", alert.text);
  if (linked) text.href = `/cameras/${encodeURIComponent(alert.camera)}`;
  row.append(make("strong", alert.certain ? "Certain alert" : "Alert"), text, acknowledgeButton(alert, done));
  return row;
}

/** A button that says that somebody has seen an alert, or the word that somebody has. */
export function acknowledgeButton(alert, done) {
  if (alert.acknowledged) return make("span", "Acknowledged", "quiet");
  const button = make("button", "Acknowledge", "small");
  button.type = "button";
  button.setAttribute("aria-label", `Acknowledge: ${alert.text}`);
  button.addEventListener("click", async () => {
    try {
      await post(`/v1/alerts/${alert.id}/acknowledge`);
      await done();
      document.querySelector("button[aria-label^='Acknowledge:']")?.focus(); // for whoever goes through them with keys
    } catch (error) {
      showError(error.message);
    }
  });
  return button;
}

const LEVELS = [
  ["level-0", "below 0.43: people walk freely"], ["level-1", "0.43: less room to walk"], ["level-2", "2: slow shuffle"],
  ["level-3", "3.57: people touch"], ["level-4", "5.55: dangerous"], ["level-5", "7.1: critical"],
];
const CROWD = [["few", "few"], ["some", "more"], ["many", "most in this picture"]];

/** The heat maps' colours in words: people per square metre where the ground is known, else people per cell. */
export function showLegend(element, measured, unmeasured) {
  const scales = [];
  if (measured) scales.push(["People per m²:", LEVELS]);
  if (unmeasured) scales.push([measured ? "Cameras without ground:" : "People:", CROWD]);
  const key = scales.map(([title]) => title).join();
  if (element.dataset.shown === key) return;
  element.dataset.shown = key;
  element.replaceChildren(...scales.map(([title, entries]) => {
    const row = make("p");
    row.append(make("span", title), ...entries.map(([kind, text]) => swatch(kind, text)));
    return row;
  }));
}

function swatch(kind, text) {
  const entry = document.createElement("span");
  entry.append(make("i", "", kind), text);
  return entry;
}
