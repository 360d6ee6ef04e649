// The limits of a camera as rows of a form.

import { make } from "/page/shared.js";

export function limitRow(limit, zones, changed) {
  const row = make("li");
  row.dataset.rest = JSON.stringify({ clear_below: limit.clear_below ?? null, cooldown_seconds: limit.cooldown_seconds });
  const value = field("value", limit.people ?? limit.per_square_metre, "Limit");
  const kind = choice("kind", [["people", "people"], ["per_square_metre", "people per m²"]], limit.people == null ? "per_square_metre" : "people", "Unit");
  const zone = choice("zone", [["", "whole picture"], ...zones.map((name) => [name, name])], limit.zone ?? "", "Where");
  const seconds = field("seconds", limit.for_seconds ?? 0, "For seconds");
  const remove = make("button", "×", "icon");
  remove.type = "button";
  remove.setAttribute("aria-label", "Remove this limit");
  remove.addEventListener("click", () => { row.remove(); changed(); });
  row.append(value, kind, remove, zone, seconds);
  row.addEventListener("input", changed);
  return row;
}

/** Zones that were drawn or removed meanwhile; a limit keeps the zone it has, and the service says if that is gone. */
export function showZonesIn(list, zones) {
  for (const select of list.querySelectorAll("select.zone")) {
    const known = [...select.options].map((option) => option.value);
    select.append(...zones.filter((name) => !known.includes(name)).map((name) => Object.assign(make("option", name), { value: name })));
    for (const option of [...select.options]) {
      if (option.value && option.value !== select.value && !zones.includes(option.value)) option.remove();
    }
  }
}

/** As the service takes them. A level that clears an alert goes on only with the limit it belongs to. */
export function readLimits(list) {
  return [...list.children].map((row) => {
    const of = (kind) => row.querySelector(`.${kind}`).value;
    const number = Number(of("value"));
    const { clear_below: clear, cooldown_seconds: cooldown } = JSON.parse(row.dataset.rest);
    return {
      zone: of("zone") || null,
      [of("kind")]: number,
      for_seconds: Number(of("seconds") || 0),
      clear_below: clear !== null && clear <= number ? clear : null,
      cooldown_seconds: cooldown,
    };
  });
}

function field(kind, value, text) {
  const input = make("input", "", kind);
  Object.assign(input, { type: "number", min: "0", step: "any", value });
  return labelled(input, text);
}

function choice(kind, options, chosen, text) {
  const select = make("select", "", kind);
  select.append(...options.map(([value, shown]) => Object.assign(make("option", shown), { value })));
  select.value = chosen;
  return labelled(select, text);
}

function labelled(control, text) {
  const label = make("label", text);
  label.append(control);
  return label;
}
