// Alerts: open ones with a button to say that somebody has seen them, and those that have ended.

import { get, listen } from "/page/api.js";
import { acknowledgeButton, at, clock, make, showAlertNumber, showError, showRows, watchServer } from "/page/shared.js";
import { people, perSquareMetre } from "/page/zones.js";

const MOST_RECENT = 200;

const REASONS = { cleared: "below the limit again", silent: "the camera fell silent", removed: "its settings were changed" };
const OVER = { silent: "frames come again", frozen: "the picture moves again", unfamiliar: "the scene is familiar again", saturated: "the crowd is less dense again" };

async function show() {
  try {
    const alerts = await get("/v1/alerts");
    const { open, recent } = alerts;
    showAlertNumber(open);
    showRows(at("open"), open, openRow);
    showRows(at("recent"), recent.slice(0, MOST_RECENT), recentRow);
    at("none-open").hidden = open.length > 0;
    at("none-recent").hidden = recent.length > 0;
    for (const what of ["open", "recent"]) at(what).parentElement.hidden = !alerts[what].length;
    at("more-recent").hidden = recent.length <= MOST_RECENT;
  } catch (error) {
    if (error.status) showError(error.message); // that the server is lost is said above
  }
}

function openRow(alert) {
  const seen = make("td");
  if (alert.acknowledged) seen.textContent = clock(alert.acknowledged);
  else seen.append(acknowledgeButton(alert, show));
  return row([["Since", make("td", clock(alert.opened))], ["What", what(alert)], ["Certain", certain(alert)], ["Seen", seen]]);
}

function recentRow(alert) {
  return row([
    ["From", make("td", clock(alert.opened))], ["To", make("td", clock(alert.ended))], ["What", what(alert)],
    ["Highest", make("td", peak(alert))], ["Certain", certain(alert)], ["Why it ended", make("td", reason(alert))],
  ]);
}

function reason(alert) {
  if (alert.end_reason === "cleared" && alert.limit === null) return OVER[alert.kind];
  return REASONS[alert.end_reason] ?? "";
}

/** Only a number of people can be certain. */
function certain(alert) { return make("td", alert.limit === null ? "" : alert.certain ? "yes" : "no"); }

function what(alert) {
  const cell = make("td");
  const link = make("a", alert.text);
  link.href = `/cameras/${encodeURIComponent(alert.camera)}`;
  cell.append(link);
  return cell;
}

function peak(alert) {
  if (alert.limit === null || alert.peak === null) return "";
  return alert.kind === "people" ? people(alert.peak) : `${perSquareMetre(alert.peak)} per\u00a0m²`;
}

/** On a phone a row is a block of lines, and each needs its heading beside it. */
function row(cells) {
  const made = make("tr");
  for (const [heading, cell] of cells) {
    cell.dataset.heading = heading;
    made.append(cell);
  }
  return made;
}

at("error-close").addEventListener("click", () => showError(""));
show();
setInterval(show, 10000);
watchServer();
listen({ alert: show });
