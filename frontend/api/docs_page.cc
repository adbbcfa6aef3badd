#include "frontend/api/openapi.h"

namespace tandem {

// Without a framework: the document has few enough parts to be shown as they are.
std::string_view DocsPage() {
  return R"html(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tandem's HTTP API</title>
<style>
  body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
  details { border: 1px solid #ccc; border-radius: 4px; margin: .4rem 0; padding: .3rem .7rem; }
  summary { cursor: pointer; }
  code, pre, textarea, td:first-child { font: 13px/1.45 ui-monospace, monospace; }
  b.method { display: inline-block; min-width: 4rem; }
  table { border-collapse: collapse; width: 100%; }
  td { border-top: 1px solid #eee; padding: .2rem .6rem .2rem 0; vertical-align: top; }
  textarea { width: 100%; height: 8rem; box-sizing: border-box; }
  pre { background: #f6f6f6; padding: .6rem; overflow: auto; max-height: 24rem; white-space: pre-wrap; }
</style>
<h1>Tandem's HTTP API</h1>
<p>What <a href="openapi.json"><code>openapi.json</code></a> says.
<label>API key <input id="key" type="password" autocomplete="off"></label></p>
<div id="routes">loading …</div>
<script>
"use strict";
const make = (tag, text, ...children) => {
  const node = document.createElement(tag);
  if (text) node.textContent = text;
  node.append(...children);
  return node;
};
const bounds = s => ["minimum", "exclusiveMinimum", "maximum", "minLength", "maxLength", "minItems"]
  .filter(name => name in s).map(name => `${name} ${s[name]}`);
const kind = s => {
  if (s.anyOf) return [...new Set(s.anyOf.map(kind))].filter(text => text != "null").join(" or ");
  if (s.enum) return s.enum.map(value => JSON.stringify(value)).join(", ");
  if ("const" in s) return "only " + JSON.stringify(s.const);
  const type = [].concat(s.type || "anything").filter(name => name != "null").join(" or ");
  const of = s.items ? " of " + kind(s.items) : "";
  return [type + of, ...bounds(s)].join(", ");
};
const fields = schema => {
  const table = make("table");
  for (const part of schema.anyOf || [schema]) {
    for (const [name, s] of Object.entries(part.properties || {})) {
      const needed = (part.required || []).includes(name) ? " (required)" : "";
      table.append(make("tr", "", make("td", name), make("td", kind(s) + needed), make("td", s.description)));
    }
  }
  return table;
};
const trial = (path, method, operation) => {
  const box = make("div");
  const body = operation.requestBody ? make("textarea") : null;
  const url = make("input");
  url.value = path;
  url.size = 50;
  const button = make("button", "send");
  const shown = make("pre");
  shown.hidden = true;
  if (body) body.value = "{}";
  button.onclick = async () => {
    shown.hidden = false;
    shown.textContent = "…";
    const key = document.getElementById("key").value;
    const headers = key ? { "X-Api-Key": key } : {};
    if (body) headers["Content-Type"] = "application/json";
    try {
      const reply = await fetch(url.value.replace(/^\//, ""), { method, headers, body: body ? body.value : undefined });
      shown.textContent = reply.status + "\n";
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      for (let part = await reader.read(); !part.done; part = await reader.read()) shown.textContent += part.value;
    } catch (error) {
      shown.textContent += String(error);
    }
  };
  box.append(url, " ", button);
  if (body) box.append(body);
  box.append(shown);
  return box;
};
const show = api => {
  const list = make("div");
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const entry = make("details");
      const line = make("summary", "", make("b", method.toUpperCase()), make("code", path), " " + operation.summary);
      line.firstChild.className = "method";
      entry.append(line);
      for (const p of operation.parameters || []) {
        entry.append(make("p", `${p.in} parameter ${p.name}: ${kind(p.schema)}. ${p.description || ""}`));
      }
      const content = operation.requestBody && operation.requestBody.content["application/json"];
      if (content) entry.append(fields(api.components.schemas[content.schema.$ref.split("/").pop()]));
      entry.append(trial(path, method.toUpperCase(), operation));
      list.append(entry);
    }
  }
  return list;
};
fetch("openapi.json").then(reply => reply.json()).then(
  api => document.getElementById("routes").replaceChildren(show(api)),
  error => { document.getElementById("routes").textContent = String(error); });
</script>
</html>
)html";
}

}  // namespace tandem
