// The pane beside the grid: one value at full length, and types to try on raw bytes.

import { ask } from "./ask.js";
import { drawItems, isStrip, picture, shape, sized, sound, sparkline } from "./cells.js";
import { counted, make } from "./make.js";

export class Pane {
  constructor(element, { info, onClose }) {
    this.element = element;
    this.info = info;
    this.onClose = onClose;
    this.asked = 0;
  }

  get isOpen() { return !this.element.hidden; }

  close() {
    this.element.hidden = true;
    this.asked += 1;
    this.element.replaceChildren();
    this.onClose();
  }

  frame(title, kind, ...content) {
    this.element.replaceChildren(
      make("div", { class: "title" }, make("h2", {}, title), make("code", {}, kind ?? ""),
        make("button", { class: "close", type: "button", "aria-label": "Close (Escape)", onclick: () => this.close() }, "×")),
      ...content);
    this.element.hidden = false;
  }

  async open(row, column) {
    this.asked += 1;
    const asked = this.asked;
    const title = `${column.name}, row ${row.title ?? row.row.toLocaleString("en")}`;
    if (row.damage) this.frame(`Row ${row.row.toLocaleString("en")}`, "damaged", ...damaged(row.damage));
    const sides = this.info.other ? [["a", this.info.name], ["b", this.info.other]] : [["", ""]];
    const parts = row.damage ? damaged(row.damage) : [];
    for (const [side, name] of sides) {
      if (side !== "b" && row.damage) continue;
      if (side) parts.push(make("h3", {}, `${side}: ${name}`));
      try {
        const found = await ask("value", { row: row.row, column: column.index, side });
        const boxes = side === "b" ? null : row.boxes?.[column.place];
        parts.push(...this.value(found, { row: row.row, column: column.index, side, boxes }));
      } catch (error) {
        parts.push(make("p", { class: "odd" }, error.message));
      }
      if (asked !== this.asked) return;
    }
    this.frame(title, column.type ?? column.other, ...parts);
  }

  value(found, place) {
    const parts = [];
    if (found.kind === "image") parts.push(make("div", { class: "large" }, picture(found, place)));
    if (found.kind === "audio") parts.push(this.player(found, place));
    if (found.kind === "number") parts.push(make("p", { class: "exact" }, found.exact, found.label ? ` ${found.label}` : ""));
    if (found.kind === "text") parts.push(make("pre", { class: "text", tabindex: "0" }, found.text));
    if (found.kind === "list") parts.push(make("ol", { class: isStrip(found) ? "values strip" : "values", start: "0" }, ...drawItems(found, place)));
    const facts = [];
    if (found.shape) facts.push(`${found.dtype} ${shape(found)}`, found.min === undefined ? null : `${found.min} to ${found.max}`);
    else if (found.size !== undefined) facts.push(found.kind === "list" ? items(found) : sized({ size: found.size, type: found.type }));
    if (found.shape && found.items?.length < found.size) facts.push(items(found));
    if (found.drawn) facts.push(`drawn and measured: the first ${found.drawn.toLocaleString("en")} values`);
    if (found.note) facts.push(found.note);
    if (found.kind === "text" && found.text.length < found.size && found.text.length >= 100000) facts.push("only the beginning is shown");
    parts.push(make("p", { class: "facts" }, facts.filter(Boolean).join(" · ")));
    if (found.points && !["image", "list"].includes(found.kind)) parts.push(make("div", { class: "line" }, sparkline(found.points)));
    if (found.shape) parts.push(make("pre", { class: "values", tabindex: "0" }, found.text));
    if (found.kind === "bytes") parts.push(this.types(found, place));
    if (found.hex) parts.push(make("details", { open: found.kind === "bytes" }, make("summary", {}, "Bytes"), hexTable(found.hex)));
    return parts;
  }

  player(found, place) {
    const box = make("div", { class: "large" }, sound({ ...found, points: null }, place));
    if (found.type !== "samples" || found.rate) return box;
    const choice = make("select", { "aria-label": "Sample rate" }, ...this.info.rates.map((rate) =>
      make("option", { value: rate, selected: rate === 16000 }, `${rate.toLocaleString("en")} Hz`)));
    choice.addEventListener("change", () =>
      box.firstChild.replaceWith(sound({ ...found, points: null }, { ...place, more: { rate: choice.value } })));
    box.append(make("label", {}, "The file does not give the rate: ", choice));
    return box;
  }

  // Try types and shapes on raw bytes.
  types(found, place) {
    const shapes = found.shapes;
    const dtype = make("select", { id: "dtype" }, make("option", { value: "" }, "choose a type"),
      ...Object.keys(shapes).map((name) => make("option", { value: name }, name)));
    const axes = make("input", { id: "shape", list: "shapes", size: "14", autocomplete: "off", placeholder: "28,28" });
    const options = make("datalist", { id: "shapes" });
    const result = make("div", { "aria-live": "polite" });
    const attempt = async () => {
      if (!dtype.value) return result.replaceChildren();
      const given = { row: place.row, column: place.column, side: place.side, dtype: dtype.value, shape: axes.value };
      try {
        const tried = await ask("try", given);
        const more = { dtype: dtype.value, shape: axes.value };
        result.replaceChildren(...this.value({ ...tried, hex: null }, { ...place, boxes: null, more }), ...copyAs(tried.code));
      } catch (error) {
        result.replaceChildren(make("p", { class: "odd" }, error.message));
      }
    };
    dtype.addEventListener("change", () => {
      options.replaceChildren(...(shapes[dtype.value] ?? []).map((each) => make("option", { value: each })));
      axes.value = shapes[dtype.value]?.[0] ?? "";
      attempt();
    });
    axes.addEventListener("change", attempt);
    return make("fieldset", {}, make("legend", {}, "Read as"),
      make("label", {}, "Type ", dtype), make("label", {}, "Shape ", axes), options, result);
  }
}

const items = (found) => found.items.length < found.size
  ? `the first ${found.items.length} of ${counted(found.size, "item")}` : counted(found.size, "item");

function copyAs(code) {
  return Object.entries(code).map(([name, text]) => {
    const button = make("button", { type: "button" }, `Copy as ${name}`);
    const shown = make("pre", { class: "code", tabindex: "0" }, text);
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(shown); // a frame may not be allowed to copy
        button.textContent = "Selected: press Ctrl-C";
      }
      setTimeout(() => { button.textContent = `Copy as ${name}`; }, 2000);
    });
    return make("div", { class: "copy" }, button, shown);
  });
}

export function damaged(damage) {
  const parts = [make("p", { class: "odd" }, damage.reason)];
  if (damage.hex.length) parts.push(make("p", { class: "facts" }, `The bytes there, from byte ${damage.byte.toLocaleString("en")} of ${damage.file}:`), hexTable(damage.hex));
  return parts;
}

function hexTable(lines) {
  return make("pre", { class: "hex", tabindex: "0" }, ...lines.flatMap(([offset, bytes, text]) =>
    [make("small", {}, offset), `  ${bytes.padEnd(47)}  ${text}\n`]));
}
