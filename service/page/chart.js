// The chart of a camera's history: mean, range and limits over time; gaps stay gaps.

const BUCKETS = { raw: 0, minute: 60, hour: 3600, day: 86400 };
const LEFT = 44, BOTTOM = 22, TOP = 8, RIGHT = 12;

/** Points without a gap: a bucket that is missing is one, and so is a time much longer than usual between counts. */
export function stretches(points, step) {
  const apart = points.slice(1).map((point, index) => point.time - points[index].time).sort((a, b) => a - b);
  const usual = apart[Math.floor(apart.length / 2)] ?? 0;
  const most = step ? 1.5 * Math.max(step, usual) : Math.max(5, 3 * usual);
  const runs = [];
  points.forEach((point, index) => {
    if (index === 0 || point.time - points[index - 1].time > most) runs.push([]);
    runs.at(-1).push(point);
  });
  return runs;
}

export class Chart {
  /** `chosen(start, end)` is called when a stretch of time was selected; `read(text)` with a value under the cursor. */
  constructor(canvas, chosen, read) {
    Object.assign(this, { canvas, chosen, read, points: [], limits: [], start: 0, end: 1, step: 60, index: -1, drag: null });
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = [event.offsetX, event.offsetX];
    });
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    canvas.addEventListener("pointerup", () => this.#up());
    canvas.addEventListener("keydown", (event) => this.#key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  show(points, limits, start, end, resolution) {
    // A value that is read with the keys stays chosen while new counts come in.
    const read = this.points[this.index]?.time;
    Object.assign(this, { points, limits, start, end, step: BUCKETS[resolution] });
    this.index = points.findIndex((point) => point.time === read);
    this.draw();
  }

  draw() {
    const { canvas, points } = this;
    const ratio = devicePixelRatio || 1;
    this.width = canvas.clientWidth;
    this.height = canvas.clientHeight;
    canvas.width = this.width * ratio;
    canvas.height = this.height * ratio;
    const context = this.context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    this.colour = (name) => style.getPropertyValue(name);
    const highest = points.reduce((most, point) => Math.max(most, point.high ?? 0, point.max), 0) || 1;
    this.top = 1.1 * Math.max(highest, ...this.limits.filter((limit) => limit < 4 * highest));
    this.#axes();
    for (const run of stretches(points, this.step)) this.#drawRun(run);
    this.#drawLimits();
    if (this.drag) {
      context.fillStyle = this.colour("--accent");
      context.globalAlpha = 0.2;
      context.fillRect(Math.min(...this.drag), TOP, Math.abs(this.drag[1] - this.drag[0]), this.height - TOP - BOTTOM);
      context.globalAlpha = 1;
    }
    if (this.index >= 0) this.#dot(points[this.index]);
    if (!points.length) {
      context.fillStyle = this.colour("--quiet");
      context.textAlign = "center";
      context.font = "14px system-ui, sans-serif";
      context.fillText("Nothing was counted in this time.", this.width / 2, this.height / 2);
    }
  }

  #x(time) { return LEFT + (this.width - LEFT - RIGHT) * (time - this.start) / (this.end - this.start); }

  #y(value) { return TOP + (this.height - TOP - BOTTOM) * (1 - value / this.top); }

  #time(x) { return this.start + (this.end - this.start) * (x - LEFT) / (this.width - LEFT - RIGHT); }

  #axes() {
    const { context } = this;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = this.colour("--quiet");
    context.strokeStyle = this.colour("--line");
    context.textAlign = "right";
    context.textBaseline = "middle";
    const unit = 10 ** Math.floor(Math.log10(this.top));
    const step = [0.2, 0.5, 1, 2].map((one) => one * unit).find((one) => this.top / one <= 5) ?? unit;
    for (let value = 0; this.points.length && value <= this.top; value += step) {
      context.fillText(Number(value.toPrecision(3)).toLocaleString("en"), LEFT - 6, this.#y(value));
      context.beginPath();
      context.moveTo(LEFT, this.#y(value));
      context.lineTo(this.width - RIGHT, this.#y(value));
      context.stroke();
    }
    context.textBaseline = "alphabetic";
    const marks = Math.max(2, Math.floor(this.width / 130));
    for (let mark = 0; mark <= marks; mark += 1) {
      const time = this.start + (this.end - this.start) * mark / marks;
      context.textAlign = mark === 0 ? "left" : mark === marks ? "right" : "center";
      context.fillText(this.#label(time), this.#x(time), this.height - 6);
    }
  }

  #label(time) {
    const long = this.end - this.start > 2 * 86400;
    const options = long ? { month: "short", day: "numeric", hour: "2-digit" } : { hour: "2-digit", minute: "2-digit" };
    return new Date(1000 * time).toLocaleString([], options);
  }

  #drawRun(run) {
    const { context } = this;
    const accent = this.colour("--accent");
    const ranged = run.filter((point) => point.low !== null);
    context.fillStyle = context.strokeStyle = accent;
    if (ranged.length > 1) {
      context.globalAlpha = 0.18;
      context.beginPath();
      ranged.forEach((point) => context.lineTo(this.#x(point.time), this.#y(point.high)));
      ranged.toReversed().forEach((point) => context.lineTo(this.#x(point.time), this.#y(point.low)));
      context.fill();
      context.globalAlpha = 1;
    }
    if (this.step) { // a bucket's mean hides the moment that was above a limit
      context.lineWidth = 1;
      context.setLineDash([2, 2]);
      this.#line(run, "max");
      context.setLineDash([]);
    }
    context.lineWidth = 1.6;
    this.#line(run, "mean");
    if (run.length === 1) this.#dot(run[0], 2);
  }

  #line(run, value) {
    this.context.beginPath();
    run.forEach((point) => this.context.lineTo(this.#x(point.time), this.#y(point[value])));
    this.context.stroke();
  }

  #dot(point, radius = 4) {
    const { context } = this;
    context.fillStyle = this.colour("--accent");
    context.beginPath();
    context.arc(this.#x(point.time), this.#y(point.mean), radius, 0, 7);
    context.fill();
  }

  #drawLimits() {
    const { context } = this;
    context.save();
    context.setLineDash([6, 4]);
    context.strokeStyle = context.fillStyle = this.colour("--alert");
    context.textAlign = "left"; // the newest counts are on the right
    for (const limit of this.limits) {
      if (limit > this.top) continue;
      context.beginPath();
      context.moveTo(LEFT, this.#y(limit));
      context.lineTo(this.width - RIGHT, this.#y(limit));
      context.stroke();
      context.fillText(`limit ${limit}`, LEFT + 4, this.#y(limit) - 4);
    }
    context.restore();
  }

  #move(event) {
    if (this.drag) this.drag[1] = event.offsetX;
    const time = this.#time(event.offsetX);
    let best = -1;
    this.points.forEach((point, index) => {
      if (best < 0 || Math.abs(point.time - time) < Math.abs(this.points[best].time - time)) best = index;
    });
    this.#select(best);
  }

  #up() {
    const [from, to] = (this.drag ?? [0, 0]).map((x) => this.#time(x)).sort((a, b) => a - b);
    const wide = this.drag && Math.abs(this.drag[1] - this.drag[0]) > 8;
    this.drag = null;
    if (wide) this.chosen(from, to);
    else this.draw();
  }

  #key(event) {
    if (event.key === "+" || event.key === "-") return this.#zoom(event.key === "+" ? 0.5 : 2);
    const steps = { ArrowLeft: -1, ArrowRight: 1 };
    if (!(event.key in steps) || !this.points.length) return;
    event.preventDefault();
    const last = this.points.length - 1;
    this.#select(this.index < 0 ? last : Math.min(last, Math.max(0, this.index + steps[event.key])));
  }

  /** Around the value that is read, else towards the newest. */
  #zoom(factor) {
    const seconds = Math.max(60, factor * (this.end - this.start));
    const middle = this.points[this.index]?.time ?? this.end - seconds / 2;
    this.chosen(middle - seconds / 2, middle + seconds / 2);
  }

  #select(index) {
    this.index = index;
    this.draw();
    if (index >= 0) this.read(this.points[index]);
  }
}
