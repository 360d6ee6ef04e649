// A camera's history: which time and which of its zones the chart shows, and the same as a table.

import { get, getBlob, serverNow } from "/page/api.js";
import { Chart } from "/page/chart.js";
import { save } from "/page/files.js";
import { at, cameraPath, clock, make } from "/page/shared.js";
import { people } from "/page/zones.js";

const RESOLUTIONS = ["raw", "minute", "hour", "day"];
const HELP = "Drag over the chart to zoom in. With keys: arrows read single values, + and - zoom.";

export class HistoryPanel {
  /** `limits` gives the camera's limits as they are set now. */
  constructor(name, limits) {
    Object.assign(this, { name, limits, hours: 24, span: null, history: null });
    this.chart = new Chart(at("chart"), (start, end) => this.#zoom(start, end), (point) => this.#readOut(point));
    at("series").addEventListener("change", () => this.draw());
    at("save-history").addEventListener("click", () => this.#save());
    for (const button of document.querySelectorAll("[data-hours]")) {
      button.addEventListener("click", () => {
        this.#press(button);
        this.show();
      });
    }
  }

  /** The shortest time that holds all there is: on the first day, a day would be an empty chart. */
  async begin() {
    if (!await this.#fetch()) return;
    const times = this.history.series.flatMap((series) => series.points.slice(0, 1).map((point) => point.time));
    const age = serverNow() / 1000 - Math.min(...times);
    const button = [...document.querySelectorAll("[data-hours]")].find((one) => 3600 * Number(one.dataset.hours) > age);
    if (times.length && button && Number(button.dataset.hours) < this.hours) {
      this.#press(button);
      await this.#fetch();
    }
    this.#showSeries();
    this.draw();
  }

  async show() {
    if (!await this.#fetch()) return;
    this.#showSeries();
    this.draw();
  }

  async #fetch() {
    const end = this.span?.[1] ?? serverNow() / 1000;
    const start = this.span?.[0] ?? end - 3600 * this.hours;
    const seconds = end - start;
    const finest = seconds <= 1800 ? "raw" : seconds <= 2 * 86400 ? "minute" : "hour";
    try {
      // Single counts and minutes are deleted after a while, and are there as longer times still.
      for (const resolution of RESOLUTIONS.slice(RESOLUTIONS.indexOf(finest))) {
        const found = await get(cameraPath(this.name, `/history?${query(start, end, resolution)}`));
        if (resolution === finest || found.series.length) this.history = found;
        if (found.series.length) break;
      }
      return true;
    } catch (error) {
      at("readout").textContent = error.message;
      return false;
    }
  }

  draw() {
    if (!this.history) return;
    const { series, start, end, resolution } = this.history;
    const [zone, kind] = chosen();
    const points = series.find((one) => one.zone === zone)?.points ?? [];
    const limits = this.limits().filter((limit) => limit[kind] !== null && (limit.zone ?? null) === zone);
    this.chart.show(kind === "people" ? points : densities(points), limits.map((limit) => limit[kind]), start, end, resolution);
    const read = this.chart.points[this.chart.index];
    if (read) this.#readOut(read);
    else at("readout").textContent = HELP;
    at("chart-highest").hidden = resolution === "raw";
    at("chart-range").hidden = kind !== "people";
  }

  #showSeries() {
    const before = at("series").value;
    const options = this.history.series.map(({ zone }) => option(zone, "people", zone ?? "Whole picture"));
    for (const { zone, points } of this.history.series) {
      const measured = points.some((point) => point.people_per_square_metre !== null);
      if (measured) options.push(option(zone, "per_square_metre", `${zone ?? "Densest 10\u00a0m²"}, per\u00a0m²`));
    }
    at("series").replaceChildren(...options);
    at("series").hidden = !options.length;
    at("series").value = options.some((one) => one.value === before) ? before : options[0]?.value ?? "";
  }

  #zoom(start, end) {
    this.span = [start, Math.min(end, serverNow() / 1000)];
    this.#press(null);
    this.show();
  }

  #press(pressed) {
    if (pressed) Object.assign(this, { hours: Number(pressed.dataset.hours), span: null });
    for (const button of document.querySelectorAll("[data-hours]")) button.setAttribute("aria-pressed", button === pressed);
  }

  #readOut(point) {
    const isPeople = chosen()[1] === "people";
    const shown = (value) => (isPeople ? people(value) : value.toFixed(2));
    const range = point.low === null ? "" : `, likely ${people(point.low)} to ${people(point.high)}`;
    const least = point.min === null ? "at most " : `${shown(point.min)} to `;
    const many = point.counts > 1 ? ` on average (${least}${shown(point.max)} in ${point.counts} counts)` : "";
    at("readout").textContent = `${clock(point.time)}: ${shown(point.mean)} ${isPeople ? "people" : "people per m²"}${many}${range}`;
  }

  async #save() {
    if (!this.history) return;
    const { start, end, resolution } = this.history;
    try {
      const path = cameraPath(this.name, `/history?${query(start, end, resolution)}`);
      save(await getBlob(path, "text/csv"), `${this.name}.csv`);
    } catch (error) {
      at("readout").textContent = error.message;
    }
  }
}

function chosen() { return at("series").value ? JSON.parse(at("series").value) : [null, "people"]; }

function option(zone, kind, text) { return Object.assign(make("option", text), { value: JSON.stringify([zone, kind]) }); }

/** The same points with densities in place of people; those without one are a gap. */
function densities(points) {
  return points.filter((point) => point.people_per_square_metre !== null).map((point) => ({
    ...point, mean: point.people_per_square_metre, max: point.max_per_square_metre, min: null, low: null, high: null,
  }));
}

function query(start, end, resolution) {
  const iso = (seconds) => new Date(1000 * seconds).toISOString();
  return new URLSearchParams({ start: iso(start), end: iso(end), resolution });
}
