// Photographs: pictures come in, their counts are shown, zones are drawn, results are saved.

import { count, get } from "/page/api.js";
import { countAlerts, make, showRows } from "/page/shared.js";
import { csv, json, png, save, saveText } from "/page/files.js";
import { heatCanvas, paint, paintLegend, scaleTop } from "/page/heat.js";
import { rowOf } from "/page/rows.js";
import { people, ZoneEditor } from "/page/zones.js";

const SAVES = ["save-png", "save-csv", "save-json"];
const at = (id) => document.getElementById(id);
const state = { file: null, picture: null, answer: null, heat: null, view: "overlay", running: null, done: null, queue: [], followed: true };
const editor = new ZoneEditor(at("zones"), zonesChanged, drawingChanged);

function showError(text) {
  at("error-text").textContent = text;
  at("error").hidden = !text;
  if (text) at("error").scrollIntoView({ block: "nearest" });
}

/** A new file: shown at once where the browser can, counted, zones kept (they fit any size). */
async function open(file) {
  if (!file) return;
  showError("");
  state.running?.abort(); // its count is not of this file
  Object.assign(state, { file, answer: null, running: null });
  editor.abandon();
  state.picture?.close();
  state.picture = await createImageBitmap(file).catch(() => null);
  if (state.file !== file) return;
  at("drop").hidden = true;
  at("picture").hidden = false;
  forgetCounts();
  layOut();
  await recount();
}

/** Several pictures: counted one after the other, listed by name; any of them can be looked at meanwhile. */
async function openAll(files) {
  if (!files.length) return;
  const queue = state.queue = files.map((file) => ({ file, text: "waiting" }));
  state.followed = true;
  at("files-card").hidden = files.length < 2;
  for (const entry of queue) {
    if (entry.text !== "waiting") continue; // looked at before its turn
    entry.text = "counting";
    if (state.followed) await open(entry.file);
    // Somebody looks at another one now, or has drawn a zone, which starts the count anew.
    while (state.queue === queue && entry.text === "counting") {
      await (state.running && state.file === entry.file ? state.done : countUnseen(entry));
    }
    if (state.queue !== queue) return; // others were chosen meanwhile
  }
}

async function countUnseen(entry) {
  showFiles();
  const found = await count(entry.file, []).then(
    (answer) => ({ text: people(answer.count) }), (error) => ({ text: "not counted", why: error.message }));
  if (entry.text === "counting") Object.assign(entry, found); // else it was looked at meanwhile, and counted for that
  showFiles();
}

/** What came of the picture that is looked at. */
function noteCount(text, why = "") {
  const entry = state.queue.find((one) => one.file === state.file);
  if (entry) Object.assign(entry, { text, why });
  showFiles();
}

function showFiles() {
  const { queue } = state;
  at("progress").textContent = `${queue.filter(({ text }) => !["waiting", "counting"].includes(text)).length} of ${queue.length}`;
  if (queue.length > 1) at("panel").hidden = false;
  const items = queue.map(({ file, text, why }, index) => ({ id: String(index), name: file.name, text, why, current: file === state.file }));
  showRows(at("files"), items, fileRow);
}

function fileRow({ id, name, text, why, current }) {
  const row = make("li");
  const button = make("button", name, "link");
  button.type = "button";
  if (current) button.setAttribute("aria-current", "true");
  button.addEventListener("click", () => {
    state.followed = false;
    open(state.queue[id].file);
  });
  row.append(button, make("output", text));
  if (why) row.append(make("p", why, "quiet"));
  return row;
}

/** What is known of the last picture says nothing about this one. */
function forgetCounts() {
  at("count").textContent = "–";
  at("facts").textContent = "";
  for (const id of ["range", "warnings"]) at(id).replaceChildren();
  for (const id of SAVES) at(id).disabled = true;
  for (const zone of editor.zones) Object.assign(zone, { count: null, error: "" });
  showZones();
}

function recount() { return state.done = countShown(); }

async function countShown() {
  state.running?.abort();
  const running = state.running = new AbortController();
  const file = state.file;
  at("busy").hidden = false;
  showFiles();
  try {
    const answer = await count(file, editor.export(), running.signal);
    if (state.running !== running) return;
    const first = state.answer === null;
    state.answer = answer;
    const top = scaleTop(answer.map.cells);
    state.heat = { full: heatCanvas(answer.map, top, false), veiled: heatCanvas(answer.map, top, true), top };
    editor.zones.forEach((zone, index) => {
      answer.zones[index].name = zone.name; // it may have been changed meanwhile
      Object.assign(zone, { count: answer.zones[index].count, error: "" });
    });
    showError("");
    noteCount(people(answer.count));
    showAnswer();
    if (first) at("panel").scrollIntoView({ block: "nearest", behavior: "smooth" });
  } catch (error) {
    if (state.running === running) failed(error);
  } finally {
    if (state.running === running) {
      state.running = null;
      at("busy").hidden = true;
    }
  }
}

/** A count that was refused, or stopped by hand: there is none to show, or the last one goes on but for some zones. */
function failed(error) {
  if (error.name !== "AbortError") showError(error.message);
  if (!state.answer) {
    for (const id of ["picture", "panel", "tools"]) at(id).hidden = true;
    at("drop").hidden = false;
    noteCount("not counted", error.name === "AbortError" ? "" : error.message);
    return;
  }
  const blamed = editor.zones.find((zone) => error.message.includes(`"${zone.name}"`));
  for (const zone of editor.zones) {
    if (zone === blamed || zone.count === null) Object.assign(zone, { count: null, error: error.message });
  }
  showZones();
}

function showAnswer() {
  const { answer, picture } = state;
  for (const id of ["picture", "panel", "tools"]) at(id).hidden = false;
  for (const id of SAVES) at(id).disabled = false;
  at("no-preview").hidden = picture !== null;
  at("count").textContent = people(answer.count);
  at("range").replaceChildren(...rangeText(answer.range));
  at("warnings").replaceChildren(...answer.warnings.map((warning) => item(warning)));
  const { decode, queue, inference, total } = answer.timings_ms;
  at("facts").textContent = `${answer.width} × ${answer.height} pixels, ${Math.round(total)} ms`;
  at("facts").title = `decoding ${decode} ms, waiting ${queue} ms, inference ${inference} ms`;
  // Colours follow the root of a cell's count: in the middle of the bar stands a quarter of the top.
  at("legend-middle").textContent = Number((state.heat.top / 4).toPrecision(2));
  const side = answer.map.cell;
  at("legend-top").textContent = `${Number(state.heat.top.toPrecision(3))} people in ${side} × ${side} pixels`;
  at("legend").title = `a cell is ${answer.map.cell} × ${answer.map.cell} pixels`;
  layOut();
  showZones();
}

function rangeText(range) {
  if (!range) return ["No range: this model is not calibrated."];
  const bold = document.createElement("b");
  bold.textContent = `${people(range.low)} to ${people(range.high)}`;
  return ["likely ", bold, ` (${Math.round(100 * range.level)} %)`];
}

function item(text) {
  const made = document.createElement("li");
  made.textContent = text;
  return made;
}

/** Fit the picture into the stage and paint it at the screen's resolution. */
function layOut() {
  if (at("picture").hidden) return;
  const { width, height } = state.answer ?? state.picture ?? { width: 4, height: 3 };
  const room = at("picture").parentElement.clientWidth;
  const most = Math.max(260, window.innerHeight * (window.innerWidth < 860 ? 0.6 : 0.74));
  const scale = Math.min(room / width, most / height);
  const [shownWidth, shownHeight] = [Math.max(1, width * scale), Math.max(1, height * scale)];
  at("picture").style.width = `${shownWidth}px`;
  at("picture").style.height = `${shownHeight}px`;
  editor.resize(shownWidth, shownHeight);
  const canvas = at("canvas");
  const ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(shownWidth * ratio);
  canvas.height = Math.round(shownHeight * ratio);
  const context = canvas.getContext("2d");
  if (state.answer) paint(context, canvas.width, state);
  else if (state.picture) context.drawImage(state.picture, 0, 0, canvas.width, canvas.height);
}

function zonesChanged(added) {
  showZones();
  // Without a finger there is a keyboard: the name of the new zone can be typed at once.
  if (added && !matchMedia("(pointer: coarse)").matches) added.row.querySelector("input").select();
  recount();
}

function drawingChanged(draft) {
  document.body.classList.toggle("drawing", draft !== null);
  at("hint").hidden = draft === null;
  at("draw").disabled = draft !== null;
  at("finish").disabled = (draft?.length ?? 0) < 3;
}

/** Rows stay the same elements while their zones live: a name that is being typed must survive a new count. */
function showZones() {
  editor.render();
  at("save-zones").disabled = !editor.zones.length;
  const rows = editor.zones.map((zone) => rowOf(zone, rename, () => editor.remove(zone)));
  const list = at("zone-list");
  if (rows.length !== list.children.length || rows.some((row, index) => row !== list.children[index])) {
    list.replaceChildren(...rows);
  }
}

function rename(zone, field) {
  const name = field.value.trim();
  const taken = editor.zones.some((other) => other !== zone && other.name === name);
  if (name && !taken) {
    zone.name = name;
    const entry = state.answer?.zones[editor.zones.indexOf(zone)];
    if (entry) entry.name = name;
  }
  field.value = zone.name;
  editor.render();
}

async function loadZones(file) {
  if (!file) return;
  try {
    const { width, height } = state.answer ?? state.picture;
    for (const { name, units, polygon } of JSON.parse(await file.text()).zones) {
      const corners = polygon.map(([x, y]) => (units === "fractions" ? [x, y] : [x / width, y / height]));
      editor.add(corners, name);
    }
    zonesChanged();
  } catch {
    showError("The zones cannot be read: the file must be JSON as saved by this page.");
  }
}

function stem() { return state.file.name.replace(/\.[^.]*$/, "") || "picture"; }

at("file").addEventListener("change", (event) => {
  openAll([...event.target.files]);
  event.target.value = "";
});
at("zones-file").addEventListener("change", (event) => { loadZones(event.target.files[0]); event.target.value = ""; });
at("error-close").addEventListener("click", () => showError(""));
at("stop").addEventListener("click", () => state.running?.abort());
at("draw").addEventListener("click", () => {
  editor.begin();
  at("picture").scrollIntoView({ block: "nearest" }); // on a phone the button is far below it
});
at("finish").addEventListener("click", () => editor.finish());
at("abandon").addEventListener("click", () => editor.abandon());
at("save-zones").addEventListener("click", () =>
  saveText(JSON.stringify({ zones: editor.export() }, null, 1) + "\n", "application/json", "zones.json"));
at("save-png").addEventListener("click", async () => save(await png(state, editor.zones), `${stem()}-counted.png`));
at("save-csv").addEventListener("click", () => saveText(csv(state.file.name, state.answer), "text/csv", `${stem()}.csv`));
at("save-json").addEventListener("click", () =>
  saveText(json(state.file.name, state.answer), "application/json", `${stem()}.json`));
for (const choice of document.querySelectorAll("input[name=view]")) {
  choice.addEventListener("change", () => {
    state.view = choice.value;
    at("legend").hidden = state.view === "image";
    layOut();
  });
}

document.addEventListener("paste", (event) => {
  const file = [...event.clipboardData.files].find(({ type }) => type.startsWith("image/"));
  if (file) openAll([file]);
});
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragging"); });
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) document.body.classList.remove("dragging");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dragging");
  openAll([...event.dataTransfer.files]);
});
new ResizeObserver(layOut).observe(at("picture").parentElement);

/** Say which model serves; while it is being loaded, ask again. */
async function showModel() {
  for (;;) {
    try {
      const { name, version, device, precision } = await get("/v1/model");
      at("model").textContent = `${name} ${version} on ${device}, ${precision}`;
      return;
    } catch (error) {
      at("model").textContent = error.status === 503 ? "loading the model" : "";
      if (error.status !== 503) return showError(error.message);
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
}

paintLegend(at("legend-bar"));
showModel();
countAlerts();
