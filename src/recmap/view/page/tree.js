// The column tree: names with slashes become branches. Summaries are asked for when in sight.

import { ask } from "./ask.js";
import { bars } from "./cells.js";
import { counted, make } from "./make.js";

export class Tree {
  constructor(element, { columns, chosen, onChoose, onPick }) {
    this.element = element;
    this.onChoose = onChoose;
    this.onPick = onPick;
    this.chosen = chosen;
    this.queue = Promise.resolve();
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) if (entry.isIntersecting) this.summarise(entry.target);
    }, { root: element.parentElement, rootMargin: "200px" });
    element.replaceChildren(...this.branch(nested(columns), 1));
    element.addEventListener("keydown", (event) => this.key(event));
    this.items()[0]?.setAttribute("tabindex", "0");
  }

  branch(node, level) {
    return [...node.entries()].map(([name, child]) => child instanceof Map
      ? this.folder(name, child, level) : this.leaf(name, child, level));
  }

  folder(name, child, level) {
    const inner = make("ul", { role: "group" }, ...this.branch(child, level + 1));
    const item = make("li", { role: "treeitem", "aria-level": level, "aria-expanded": "true", tabindex: "-1", "aria-label": name },
      make("div", { class: "folder" }, make("span", { class: "twist", "aria-hidden": "true" }), name), inner);
    item.firstChild.addEventListener("click", () => toggle(item));
    return item;
  }

  leaf(name, column, level) {
    const box = make("input", { type: "checkbox", tabindex: "-1", "aria-label": `show ${column.name}` });
    box.checked = this.chosen.has(column.index);
    box.addEventListener("change", () => this.choose(column, box.checked));
    const kind = make("code", { class: "kind" }, column.type ?? "only in b");
    const differs = column.other !== undefined && column.other !== column.type;
    const item = make("li", {
      role: "treeitem", "aria-level": level, tabindex: "-1", "aria-label": `${column.name}, ${column.type ?? column.other}`,
    }, make("div", { class: "leaf" }, box,
      make("button", { class: "name", type: "button", tabindex: "-1", title: column.name, onclick: () => this.onPick(column) }, name), kind),
    differs ? make("div", { class: "mismatch" }, `in b: ${column.other ?? "missing"}`) : null,
    make("div", { class: "summary" }, make("small", {}, column.storage ?? "")));
    item.column = column;
    this.seen.observe(item);
    return item;
  }

  choose(column, on) {
    if (on) this.chosen.add(column.index);
    else this.chosen.delete(column.index);
    this.onChoose();
  }

  // One after another: the reader of the file does one thing at a time.
  summarise(item) {
    this.seen.unobserve(item);
    this.queue = this.queue.then(async () => {
      const place = item.querySelector(".summary");
      try {
        place.replaceChildren(...summaryOf(await ask("summary", { column: item.column.index }), item.column));
      } catch (error) {
        place.replaceChildren(make("small", { class: "odd" }, error.message));
      }
    });
  }

  items() {
    return [...this.element.querySelectorAll('[role="treeitem"]')].filter((item) =>
      !item.parentElement.closest('[aria-expanded="false"]'));
  }

  key(event) {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || (event.target !== item && event.key !== "Escape")) return;
    const items = this.items(), at = items.indexOf(item);
    const open = item.getAttribute("aria-expanded");
    let next = null;
    if (event.key === "ArrowDown") next = items[at + 1];
    else if (event.key === "ArrowUp") next = items[at - 1];
    else if (event.key === "Home") next = items[0];
    else if (event.key === "End") next = items.at(-1);
    else if (event.key === "ArrowLeft" && open === "true") toggle(item);
    else if (event.key === "ArrowLeft") next = item.parentElement.closest('[role="treeitem"]');
    else if (event.key === "ArrowRight" && open === "false") toggle(item);
    else if (event.key === "ArrowRight" && open === "true") next = items[at + 1];
    else if (event.key === "Enter" && item.column) this.onPick(item.column);
    else if (event.key === " " && item.column) item.querySelector("input").click();
    else if (event.key === "Enter" || event.key === " ") toggle(item);
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (next) {
      item.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    }
  }
}

function nested(columns) {
  const root = new Map();
  for (const column of columns) {
    const parts = column.name.split("/");
    let node = root;
    for (const part of parts.slice(0, -1)) {
      if (!(node.get(part) instanceof Map)) {
        const inner = new Map();
        if (node.has(part)) inner.set("", node.get(part)); // both x and x/y are columns
        node.set(part, inner);
      }
      node = node.get(part);
    }
    const last = parts.at(-1);
    if (node.get(last) instanceof Map) node.get(last).set("", column);
    else node.set(last, column);
  }
  return root;
}

function toggle(item) {
  item.setAttribute("aria-expanded", item.getAttribute("aria-expanded") === "true" ? "false" : "true");
}

function summaryOf(found, column) {
  const numbers = found.values ?? found.lengths;
  const length = found.values ? "" : "length ";
  const parts = [];
  if (numbers?.bars?.length && numbers.min === numbers.max) {
    parts.push(make("small", {}, `always ${length}${numbers.min}`));
  } else if (numbers?.bars?.length) {
    const label = `histogram, ${length}${numbers.min} to ${numbers.max}`;
    parts.push(make("div", { class: "histogram" }, bars(numbers.bars, label),
      make("small", { class: "range" }, make("span", {}, `${length}${numbers.min}`), make("span", {}, numbers.max))));
  } else if (numbers?.min !== null && numbers?.min !== undefined) {
    parts.push(make("small", {}, `${length}${numbers.min} to ${numbers.max}`));
  }
  const facts = [];
  if (found.nulls) facts.push(`${found.nulls.toLocaleString("en")} null`);
  if (found.values?.nan) facts.push(`${found.values.nan.toLocaleString("en")} NaN`);
  if (found.empty) facts.push(`${found.empty.toLocaleString("en")} empty`);
  if (found.damaged) facts.push(`${found.damaged.toLocaleString("en")} damaged`);
  if (!facts.length) facts.push("none missing");
  if (found.distinct !== undefined) facts.push(`${found.distinct.toLocaleString("en")} distinct`);
  if (column.storage) facts.push(column.storage);
  parts.push(make("small", {}, facts.join(" · ")));
  if (found.top?.length) {
    parts.push(make("ol", { class: "top", "aria-label": "most frequent values" }, ...found.top.map((each) => {
      const bar = make("meter", { min: 0, max: found.rows, value: each.count, "aria-hidden": "true" });
      return make("li", {}, make("span", { title: each.text }, each.text || "(empty)"), bar, make("small", {}, each.count.toLocaleString("en")));
    })));
  }
  parts.push(make("small", { class: "of" }, found.whole ? `of all ${counted(found.rows, "row")}` : `of the first ${counted(found.rows, "row")}`));
  return parts;
}
