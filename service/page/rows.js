// The list of zones: a row each, with its name to be changed, its count, and a button to remove it.

import { people } from "/page/zones.js";

/** A zone's row, up to date; made once, so that a name being typed survives a new count. */
export function rowOf(zone, rename, remove) {
  zone.row ??= makeRow(zone, rename, remove);
  zone.row.classList.toggle("wrong", Boolean(zone.error));
  zone.row.querySelector("output").textContent =
    zone.error ? "not counted" : zone.count === null ? "…" : people(zone.count);
  return zone.row;
}

function makeRow(zone, rename, remove) {
  const row = document.createElement("li");
  const name = document.createElement("input");
  name.value = zone.name;
  name.maxLength = 64;
  name.setAttribute("aria-label", "Name of the zone");
  name.addEventListener("change", () => rename(zone, name));
  name.addEventListener("keydown", (event) => { if (event.key === "Enter") name.blur(); });
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon";
  button.textContent = "×";
  button.setAttribute("aria-label", "Remove this zone");
  button.addEventListener("click", remove);
  row.append(name, document.createElement("output"), button);
  return row;
}
