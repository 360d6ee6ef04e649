// The API's reference, drawn from /openapi.json by hand: no outside resource, no library.

import { get } from "/page/api.js";

function make(name, content, className) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...(Array.isArray(content) ? content : [content]));
  return made;
}

function code(text) { return make("code", text); }

function table(rows) {
  return make("table", make("tbody", rows.map((row) => make("tr", row.map((cell) => make("td", cell))))));
}

function typeOf(schema, document) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return String(schema.const);
  const options = schema.anyOf ?? schema.oneOf;
  if (options) return options.map((option) => typeOf(option, document)).join(" | ");
  if (schema.type === "array") return `list of ${typeOf(schema.items ?? {}, document)}`;
  return schema.format === "binary" ? "bytes" : schema.type ?? "any";
}

function fields(schema, document) {
  const found = schema.$ref ? document.components.schemas[schema.$ref.split("/").pop()] : schema;
  return Object.entries(found?.properties ?? {}).map(
    ([name, property]) => [code(name), typeOf(property, document), property.description ?? ""]);
}

function contents(content, document) {
  const bare = [], parts = [];
  for (const [type, { schema, example }] of Object.entries(content ?? {})) {
    const rows = fields(schema ?? {}, document);
    if (!rows.length && !example) {
      bare.push(bare.length ? ", " : "", code(type));
      continue;
    }
    parts.push(make("p", code(type)));
    if (rows.length) parts.push(table(rows));
    if (example) parts.push(make("pre", JSON.stringify(example, null, 2)));
  }
  return bare.length ? [make("p", bare), ...parts] : parts;
}

function example(method, path, operation) {
  const types = Object.keys(operation.requestBody?.content ?? {});
  const host = location.origin;
  if (types.includes("image/jpeg")) return `curl --data-binary @crowd.jpg -H 'Content-Type: image/jpeg' ${host}${path}`;
  if (types.includes("multipart/form-data")) return `curl -F image=@a.jpg -F image=@b.jpg ${host}${path}`;
  const body = operation.requestBody?.content["application/json"]?.example;
  if (body) return `curl -d '${JSON.stringify(body)}' ${host}${path}`;
  return `curl ${method === "get" ? "" : `-X ${method.toUpperCase()} `}${host}${path}`;
}

function operation(path, method, entry, document) {
  const inside = [];
  if (entry.description) inside.push(make("p", entry.description));
  inside.push(make("pre", example(method, path, entry)));
  if (entry.parameters?.length) {
    inside.push(make("h3", "Parameters"));
    inside.push(table(entry.parameters.map(
      ({ name, schema, description }) => [code(name), typeOf(schema, document), description ?? ""])));
  }
  if (entry.requestBody) {
    inside.push(make("h3", "Body"), make("p", entry.requestBody.description ?? ""));
    inside.push(...contents(entry.requestBody.content, document));
  }
  const success = Object.keys(entry.responses).find((status) => status.startsWith("2"));
  inside.push(make("h3", "Answers"), make("p", [code(success), ` ${entry.responses[success].description}`]));
  inside.push(...contents(entry.responses[success].content, document));
  const failures = Object.entries(entry.responses).filter(([status]) => status !== success);
  inside.push(table(failures.map(([status, response]) => [code(status), response.description])));
  const summary = make("summary", [make("span", method.toUpperCase(), "method"), code(path), make("span", entry.summary, "quiet")]);
  const details = make("details", [summary, make("div", inside, "inside")]);
  details.id = `${method}-${path}`;
  return details;
}

function draw(document_) {
  const groups = new Map();
  for (const [path, methods] of Object.entries(document_.paths)) {
    for (const [method, entry] of Object.entries(methods)) {
      const tag = entry.tags?.[0] ?? "other";
      groups.set(tag, [...(groups.get(tag) ?? []), operation(path, method, entry, document_)]);
    }
  }
  document.getElementById("version").textContent = `version ${document_.info.version}`;
  const sections = [...groups].map(([tag, operations]) => make("section", [make("h2", tag), ...operations]));
  document.getElementById("docs").replaceChildren(make("p", document_.info.description), ...sections);
  document.querySelector("details").open = true;
}

get("/openapi.json").then(draw, (error) => { document.getElementById("loading").textContent = error.message; });
