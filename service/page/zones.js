// Drawing and changing zones on the picture. Corners are in fractions of the frame: they fit any size of it.

const SVG = "http://www.w3.org/2000/svg";
const GRAB = 14; // pixels on the screen within which a corner is caught

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  parent?.append(made);
  return made;
}

export class ZoneEditor {
  /** `zones` is a list of {name, corners, count, error}; `changed` is called with a new one, or when any changed. */
  constructor(svg, changed, drawingChanged) {
    this.svg = svg;
    this.zones = [];
    this.changed = changed;
    this.drawingChanged = drawingChanged;
    this.draft = null; // the corners drawn so far
    this.drag = null;
    this.width = this.height = 1;
    svg.addEventListener("pointerdown", (event) => this.#down(event));
    svg.addEventListener("pointermove", (event) => this.#move(event));
    svg.addEventListener("pointerup", (event) => this.#up(event));
    svg.addEventListener("pointercancel", () => { this.drag = null; this.render(); });
    svg.addEventListener("dblclick", () => this.finish());
    document.addEventListener("keydown", (event) => this.#key(event));
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.render();
  }

  /** Draw a new shape: a "zone", a "mask", or the "ground", which has four corners. */
  begin(kind = "zone") {
    this.kind = kind;
    this.#setDraft([]);
    this.svg.focus({ preventScroll: true });
  }

  abandon() { this.#setDraft(null); }

  finish() {
    const corners = this.draft?.filter((corner, index, all) => index === 0 || this.#apart(corner, all[index - 1]) > 2);
    if (!corners || corners.length < 3) return;
    if (this.kind === "ground" && corners.length !== 4) return;
    this.#setDraft(null);
    if (this.kind === "ground") this.zones = this.zones.filter((zone) => zone.kind !== "ground");
    this.changed(this.add(corners, this.kind === "ground" ? "Ground" : undefined, this.kind));
  }

  add(corners, name, kind = "zone") {
    let number = this.zones.filter((zone) => zone.kind === kind).length + 1;
    const taken = new Set(this.zones.map((zone) => zone.name));
    while (!name || taken.has(name)) name = `${kind === "mask" ? "Blacked out" : "Zone"} ${number++}`;
    const zone = { name, kind, corners, count: null, error: "" };
    this.zones.push(zone);
    this.render();
    return zone;
  }

  remove(zone) {
    this.zones = this.zones.filter((other) => other !== zone);
    this.render();
    this.changed();
  }

  /** As the service and the commands read them. */
  export() {
    const round = (value) => Math.round(value * 1e5) / 1e5;
    return this.zones.map(({ name, corners }) => ({
      name, units: "fractions", polygon: corners.map(([x, y]) => [round(x), round(y)]),
    }));
  }

  render() {
    this.svg.replaceChildren();
    const text = Math.max(13, Math.min(20, this.width / 40));
    for (const zone of this.zones) {
      const group = element("g", { class: `zone ${zone.kind}${zone.error ? " wrong" : ""}${zone === this.drag?.zone ? " chosen" : ""}` }, this.svg);
      const points = this.#points(zone.corners);
      element("polygon", { class: "shadow", points }, group);
      element("polygon", { class: "shape", points }, group);
      this.#corners(zone.corners, group);
      const [x, y] = middle(zone.corners);
      const label = element("text", { x: x * this.width, y: y * this.height, "font-size": text, "stroke-width": text / 4 }, group);
      label.textContent = zone.count === null ? zone.name : `${zone.name}: ${people(zone.count)}`;
    }
    if (!this.draft) return;
    const group = element("g", { class: "draft" }, this.svg);
    const corners = this.cursor && this.draft.length ? [...this.draft, this.cursor] : this.draft;
    element("polyline", { class: "shadow", points: this.#points(corners) }, group);
    element("polyline", { class: "shape", points: this.#points(corners) }, group);
    this.#corners(this.cursor ? [...this.draft, this.cursor] : this.draft, group);
  }

  #setDraft(draft) {
    this.draft = draft;
    this.cursor = null;
    this.drag = null;
    this.drawingChanged(draft);
    this.render();
  }

  #down(event) {
    if (event.button !== 0) return;
    const at = this.#at(event);
    if (this.draft) {
      this.svg.setPointerCapture(event.pointerId);
      this.drag = { start: at };
      return;
    }
    for (const zone of [...this.zones].reverse()) {
      const index = zone.corners.findIndex((corner) => this.#apart(corner, at) < GRAB);
      if (index < 0) continue;
      this.svg.setPointerCapture(event.pointerId);
      this.drag = { zone, index };
      event.preventDefault();
      return;
    }
  }

  #move(event) {
    const at = this.#at(event);
    if (this.draft) {
      this.cursor = at;
      const dragged = this.drag && !this.draft.length && this.#apart(this.drag.start, at) > GRAB;
      if (dragged) this.drag.box = box(this.drag.start, at);
      this.render();
      if (this.drag?.box) {
        const points = this.#points(this.drag.box);
        element("polygon", { class: "shadow", points }, this.svg);
        element("polygon", { class: "shape", points }, this.svg);
      }
    } else if (this.drag) {
      this.drag.zone.corners[this.drag.index] = at;
      this.drag.zone.count = null;
      this.drag.moved = true;
      this.render();
    }
  }

  #up(event) {
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (!this.draft) {
      if (drag.moved) this.changed();
      this.render();
    } else if (drag.box) {
      this.draft = drag.box;
      this.finish();
    } else {
      const at = this.#at(event);
      if (this.draft.length >= 3 && this.#apart(this.draft[0], at) < GRAB) return this.finish();
      this.#addCorner(at);
    }
  }

  #addCorner(at) {
    this.draft.push(at);
    this.drawingChanged(this.draft);
    this.render();
    if (this.kind === "ground" && this.draft.length === 4) this.finish();
  }

  /** Without a mouse: arrows move the next corner, the space bar sets it, Enter finishes, Escape gives up. */
  #key(event) {
    if (!this.draft) return;
    const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const within = (value) => Math.min(1, Math.max(0, value));
    const onButton = event.target instanceof HTMLButtonElement;
    if (event.key === "Escape") this.abandon();
    else if (event.key === "Enter" && !onButton) this.finish();
    else if (event.target !== this.svg) return;
    else if (event.key === " ") this.#addCorner(this.cursor ?? [0.5, 0.5]);
    else if (event.key in steps) {
      const size = event.shiftKey ? 0.1 : 0.01;
      const [x, y] = this.cursor ?? [0.5, 0.5];
      this.cursor = [within(x + steps[event.key][0] * size), within(y + steps[event.key][1] * size)];
      this.render();
    } else return;
    event.preventDefault();
  }

  #at(event) {
    const frame = this.svg.getBoundingClientRect();
    const within = (value) => Math.min(1, Math.max(0, value));
    return [within((event.clientX - frame.left) / frame.width), within((event.clientY - frame.top) / frame.height)];
  }

  /** The distance of two corners in pixels on the screen. */
  #apart([x0, y0], [x1, y1]) { return Math.hypot((x1 - x0) * this.width, (y1 - y0) * this.height); }

  #points(corners) { return corners.map(([x, y]) => `${x * this.width},${y * this.height}`).join(" "); }

  #corners(corners, group) {
    for (const [x, y] of corners) element("circle", { class: "corner", cx: x * this.width, cy: y * this.height, r: 6 }, group);
  }
}

export function middle(corners) {
  const mean = (axis) => corners.reduce((sum, corner) => sum + corner[axis], 0) / corners.length;
  return [mean(0), mean(1)];
}

function box([x0, y0], [x1, y1]) { return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]; }

/** Two decimals, as the levels have that it is compared with. */
export function perSquareMetre(density) { return density.toFixed(2); }

export function people(count) {
  return count >= 10 ? Math.round(count).toLocaleString("en") : count.toFixed(1);
}
