// The settings of a camera as a form: zones, masks and ground drawn on the picture, limits, and how they are saved.

import { put, remove } from "/page/api.js";
import { limitRow, readLimits, showZonesIn } from "/page/limits.js";
import { rowOf } from "/page/rows.js";
import { at, cameraPath, make, showError } from "/page/shared.js";
import { ZoneEditor } from "/page/zones.js";

const DRAWS = { draw: "zone", "draw-mask": "mask", "draw-ground": "ground" };
const INPUTS = ["smooth", "silent", "keep-picture", "ground-width", "ground-depth"];
const HINTS = {
  zone: "Mark the corners of the zone, or drag a rectangle.",
  mask: "Mark the corners of what is to be blacked out, or drag a rectangle.",
  ground: "Mark the four corners of a rectangle on the ground whose size you know, in order around it. Its width is the side from the first corner to the second.",
};

export class SettingsForm {
  /** `saved` is called with the camera as the server answers it. Nothing can be saved before `fill`. */
  constructor(name, saved) {
    Object.assign(this, { name, saved, settings: null, dirty: false, sized: false, placed: false, metres: null });
    this.editor = new ZoneEditor(at("zones"), (added) => this.#zonesChanged(added), (draft) => this.#drawing(draft));
    for (const [id, kind] of Object.entries(DRAWS)) at(id).addEventListener("click", () => this.#begin(kind));
    for (const id of INPUTS) at(id).addEventListener("input", () => this.#changed());
    at("finish").addEventListener("click", () => this.editor.finish());
    at("abandon").addEventListener("click", () => this.editor.abandon());
    at("add-limit").addEventListener("click", () => this.#addLimit());
    at("save").addEventListener("click", () => this.#send(() => put(cameraPath(name), this.#content()), "Saved on the server."));
    at("back-to-file").addEventListener("click", () => this.#send(() => remove(cameraPath(name)), "The camera file counts again."));
    addEventListener("beforeunload", (event) => { if (this.dirty) event.preventDefault(); });
    this.#allow();
  }

  /** What the server says now: taken over, unless somebody is changing it here. */
  update(detail) {
    const same = this.settings && JSON.stringify(detail.settings) === JSON.stringify(this.settings);
    if (this.settings === null || (!this.dirty && (!same || (detail.width && !this.sized)))) this.fill(detail);
    else if (!same && this.dirty) at("saved").textContent = "Somebody else has changed these settings: Discard shows theirs, Save replaces them.";
    at("origin").hidden = !detail.overrides_file;
  }

  /** The server's settings into the form and onto the picture; corners in pixels become fractions of the frame. */
  fill(detail) {
    const { settings, width, height } = detail;
    const units = settings.units ?? settings.zones[0]?.units ?? "pixels";
    const inPixels = settings.zones.some((zone) => zone.units === "pixels") || (units === "pixels" && (settings.mask.length || settings.ground));
    Object.assign(this, { settings, dirty: false, sized: Boolean(width), metres: settings.ground?.metres ?? null });
    this.placed = this.sized || !inPixels; // pixels say nothing before the first frame: such shapes stay as they are
    const fractions = (points, unit) => (unit === "fractions" ? points : points.map(([x, y]) => [x / width, y / height]));
    this.editor.zones = [];
    if (this.placed) {
      for (const zone of settings.zones) this.editor.add(fractions(zone.polygon, zone.units), zone.name);
      for (const mask of settings.mask) this.editor.add(fractions(mask, units), undefined, "mask");
      if (settings.ground) this.editor.add(fractions(settings.ground.points, units), "Ground", "ground");
    }
    const [groundWidth, groundDepth] = settings.ground?.rectangle ?? [10, 10];
    at("ground-width").value = groundWidth;
    at("ground-depth").value = groundDepth;
    at("smooth").value = settings.smooth_seconds;
    at("silent").value = settings.silent_seconds ?? "";
    at("keep-picture").checked = settings.keep_picture;
    at("limit-list").replaceChildren(...settings.limits.map((limit) => limitRow(limit, this.#zoneNames(), () => this.#changed())));
    at("origin").hidden = !detail.overrides_file;
    at("saved").textContent = "";
    this.#allow();
    this.showZones();
  }

  /** The latest counts beside the zones. */
  showCounts(camera) {
    for (const zone of this.editor.zones) {
      const counted = camera.zones.find((one) => one.name === zone.name);
      zone.count = zone.kind === "zone" && counted ? counted.count : null;
    }
    this.showZones();
  }

  showZones() {
    const { editor } = this;
    editor.render();
    at("ground-size").hidden = !this.#of("ground").length || Boolean(this.metres);
    const rows = editor.zones.map((zone) => rowOf(zone, (one, field) => this.#rename(one, field), () => editor.remove(zone)));
    rows.forEach((row, index) => {
      const zone = editor.zones[index];
      row.querySelector("input").readOnly = zone.kind !== "zone";
      if (zone.kind !== "zone" || zone.count === null) row.querySelector("output").textContent = "";
    });
    const list = at("zone-list");
    if (rows.length !== list.children.length || rows.some((row, index) => row !== list.children[index])) list.replaceChildren(...rows);
  }

  /** Drawing needs all shapes in their places, saving what the server has now. */
  #allow() {
    const drawing = this.editor.draft !== null;
    for (const id of Object.keys(DRAWS)) at(id).disabled = drawing || !this.placed;
    for (const id of ["save", "reset", "add-limit", "back-to-file"]) at(id).disabled = this.settings === null;
  }

  #of(kind) { return this.editor.zones.filter((zone) => zone.kind === kind); }

  #zoneNames() {
    return this.placed ? this.#of("zone").map((zone) => zone.name) : this.settings.zones.map((zone) => zone.name);
  }

  #content() {
    const numbers = {
      keep_picture: at("keep-picture").checked,
      smooth_seconds: Number(at("smooth").value || 0),
      silent_seconds: at("silent").value ? Number(at("silent").value) : null,
      limits: readLimits(at("limit-list")),
    };
    if (!this.placed) return { ...this.settings, ...numbers };
    const [ground] = this.#of("ground");
    const rectangle = [Number(at("ground-width").value), Number(at("ground-depth").value)];
    return {
      ...this.settings,
      ...numbers,
      units: "fractions",
      zones: this.#of("zone").map((zone) => ({ name: zone.name, units: "fractions", polygon: zone.corners })),
      mask: this.#of("mask").map((zone) => zone.corners),
      ground: ground ? { points: ground.corners, ...(this.metres ? { metres: this.metres } : { rectangle }) } : null,
    };
  }

  async #send(request, done) {
    showError("");
    at("saved").textContent = "Saving";
    try {
      const detail = await request();
      this.fill(detail);
      this.saved(detail);
      at("saved").textContent = done;
    } catch (error) {
      at("saved").textContent = "Not saved.";
      showError(error.message);
    }
  }

  #changed() {
    this.dirty = true;
    at("saved").textContent = "Not saved yet.";
  }

  #zonesChanged(added) {
    if (added?.kind === "ground") this.metres = null; // the new corners are those of a rectangle
    this.#changed();
    this.showZones();
    showZonesIn(at("limit-list"), this.#zoneNames());
    if (added?.kind === "zone" && !matchMedia("(pointer: coarse)").matches) added.row.querySelector("input").select();
  }

  #rename(zone, field) {
    const given = field.value.trim();
    if (given && !this.editor.zones.some((other) => other !== zone && other.name === given)) {
      for (const option of at("limit-list").querySelectorAll("select.zone option")) {
        if (option.value === zone.name) Object.assign(option, { value: given, textContent: given });
      }
      zone.name = given;
      this.#changed();
    }
    field.value = zone.name;
    this.editor.render();
  }

  #addLimit() {
    const row = limitRow({ people: 100, zone: null, for_seconds: 10 }, this.#zoneNames(), () => this.#changed());
    at("limit-list").append(row);
    row.querySelector("input").select();
    this.#changed();
  }

  #begin(kind) {
    this.editor.begin(kind);
    at("picture").scrollIntoView({ block: "nearest" });
  }

  #drawing(draft) {
    document.body.classList.toggle("drawing", draft !== null);
    at("hint").hidden = draft === null;
    const keys = matchMedia("(pointer: coarse)").matches ? "" : " With keys: arrows move, space sets a corner, Enter finishes.";
    at("hint-text").textContent = (HINTS[this.editor.kind] ?? "") + keys;
    at("finish").disabled = (draft?.length ?? 0) < (this.editor.kind === "ground" ? 4 : 3);
    this.#allow();
  }
}

/** One limit and how it stands. */
export function limitState(limit, shown) {
  const unit = limit.kind === "people" ? "people" : "per m²";
  const row = make("li");
  const words = { alert: ["bad", "alert"], reached: ["near", "reached"], clear: ["ok", "below"], unknown: ["", "unknown"] };
  const [kind, text] = words[limit.state];
  const value = limit.value === null ? "–" : shown(limit.value, limit.kind);
  row.append(make("span", `${limit.zone ?? "Whole picture"}: ${value} of ${limit.limit} ${unit}`), make("span", text, `badge ${kind}`));
  return row;
}
