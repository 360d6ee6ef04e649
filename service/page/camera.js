// A camera's page: its picture, count and limits as they are now; history.js and settings.js do the rest.

import { get, getBlob, listen } from "/page/api.js";
import { HistoryPanel } from "/page/history.js";
import { limitState, SettingsForm } from "/page/settings.js";
import { age, alertRow, at, cameraPath, clock, countAlerts, make, showError, showLegend, showRows, standing, watchServer } from "/page/shared.js";
import { people, perSquareMetre } from "/page/zones.js";

const REFRESH_MS = 5000; // events tell of counts alone: that a camera fell silent is asked for
const name = nameOf(location.pathname.split("/").pop());
const state = { camera: null, keeps: false, view: "heat", shown: 0, asked: 0 };
const form = new SettingsForm(name, (detail) => { show(detail); history.draw(); });
const history = new HistoryPanel(name, () => form.settings?.limits ?? []);

function show(camera) {
  if (camera.camera !== name) return;
  state.camera = camera;
  const [kind, words] = standing(camera);
  at("badge").className = `badge ${kind}`;
  at("badge").textContent = words;
  at("picture").classList.toggle("silent", camera.silent);
  at("old-picture").hidden = !(camera.silent && camera.picture);
  at("old-picture").textContent = camera.picture ? `Picture of ${clock(camera.picture)}` : "";
  at("count").textContent = camera.count === null ? "–" : people(camera.count);
  const last = camera.last_count === null ? "No count yet." : `Silent; the last count was ${people(camera.last_count)}.`;
  const range = camera.range
    ? `likely ${people(camera.range.low)} to ${people(camera.range.high)} (${Math.round(100 * camera.range.level)} %)`
    : "No range: this model is not calibrated.";
  at("range").textContent = camera.count === null ? last : range;
  const density = camera.people_per_square_metre;
  at("density").textContent = density === null ? "" : `${perSquareMetre(density)} people per\u00a0m² in the densest 10\u00a0m²`;
  at("warnings").replaceChildren(...(camera.silent ? [] : camera.warnings.map((text) => make("li", text))));
  at("limits").replaceChildren(...camera.limits.map((limit) => limitState(limit, shownValue)));
  at("legend").hidden = !camera.picture || state.view !== "heat";
  showLegend(at("legend"), density !== null, density === null);
  form.showCounts(camera);
  layOut();
  showPicture();
}

/** As the service writes it: the same letters can be coded in two ways. */
function nameOf(path) {
  try {
    return decodeURIComponent(path).normalize("NFC");
  } catch {
    return path; // not coded as addresses are: no camera has this name
  }
}

function shownValue(value, kind) { return kind === "people" ? people(value) : perSquareMetre(value); }

async function showPicture() {
  const { picture, width } = state.camera;
  const told = width === null ? "no-frame" : picture || state.keeps ? "" : "no-picture";
  for (const id of ["no-frame", "no-picture"]) at(id).hidden = id !== told;
  if (!picture) at("image").hidden = true;
  if (!picture || picture === state.shown || Date.now() - state.asked < 1000) return;
  state.asked = Date.now();
  try {
    const blob = await getBlob(cameraPath(name, `/picture?view=${state.view}`));
    const old = at("image").src;
    at("image").src = URL.createObjectURL(blob);
    if (old) URL.revokeObjectURL(old);
    at("image").hidden = false;
    state.shown = picture;
  } catch {
    at("image").hidden = true;
  }
}

function layOut() {
  const width = state.camera?.width ?? 16; // before the first frame nobody knows
  const height = state.camera?.height ?? 9;
  const room = at("picture").parentElement.clientWidth;
  const scale = Math.min(room / width, (innerHeight * 0.7) / height);
  const [shownWidth, shownHeight] = [width * scale, height * scale];
  if (form.editor.width === shownWidth && form.editor.height === shownHeight) return;
  at("picture").style.width = `${shownWidth}px`;
  at("picture").style.height = `${shownHeight}px`;
  form.editor.resize(shownWidth, shownHeight);
}

/** Those of this camera: its badge says no more than that there are some. */
async function showAlerts() {
  const open = await countAlerts();
  if (open) showRows(at("open-alerts"), open.filter((alert) => alert.camera === name), (alert) => alertRow(alert, showAlerts, false));
}

/** The camera as the server has it; whether it could be asked for. */
async function refresh(discard = false) {
  try {
    const detail = await get(cameraPath(name));
    at("workplace").hidden = false;
    at("unknown").hidden = true;
    state.keeps = detail.settings.keep_picture;
    if (discard) form.fill(detail);
    form.update(detail);
    show(detail);
    return true;
  } catch (error) {
    if ([404, 422].includes(error.status) && !form.dirty) { // 422: no camera can have this name
      at("workplace").hidden = true;
      at("unknown").hidden = false;
      at("badge").textContent = "";
    } else if (error.status || discard) showError(error.message); // that the server is lost is said above
    return false;
  }
}

for (const choice of document.querySelectorAll("input[name=view]")) {
  choice.addEventListener("change", () => {
    Object.assign(state, { view: choice.value, shown: 0, asked: 0 });
    if (state.camera) show(state.camera);
  });
}
at("reset").addEventListener("click", () => refresh(true));
at("error-close").addEventListener("click", () => showError(""));
at("name").textContent = name;
document.title = `uepnet: ${name}`;
new ResizeObserver(layOut).observe(at("picture").parentElement);
watchServer();
if (await refresh()) await history.begin();
setInterval(() => {
  const time = state.camera?.last_time;
  at("age").textContent = time ? `last frame ${age(time)}` : "";
}, 1000);
setInterval(() => refresh(), REFRESH_MS);
setInterval(() => { if (!history.span && !document.hidden && !at("workplace").hidden) history.show(); }, 30000);
setInterval(showAlerts, 15000);
showAlerts();
listen({ count: show, alert: showAlerts });
