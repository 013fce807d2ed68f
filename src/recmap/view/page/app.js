// The page: what is shown, in which order, and the controls.

import { ask } from "./ask.js";
import { Grid, layOut, rowsText } from "./grid.js";
import { byId, counted, make } from "./make.js";
import { Pane } from "./pane.js";
import { Tree } from "./tree.js";

const MOST_COLUMNS = 40;
const MOST_FOUND = 1_000_000;

let info, grid, pane, chosen;
let order = { kind: "file" };
let running = 0; // the number of the count or search that goes on; another number stops it

async function start() {
  info = await ask("info");
  info.columns.forEach((column, index) => { column.index = index; });
  chosen = new Set(info.columns.slice(0, MOST_COLUMNS).map((column) => column.index));
  showFacts();
  fillControls();
  pane = new Pane(byId("pane"), { info, onClose: () => byId("grid").focus({ preventScroll: true }) });
  grid = new Grid(byId("grid"), {
    load, onError: (error) => tell(error.message),
    onOpen: (row, column) => pane.open(row, column),
  });
  grid.onSort = sortBy;
  new Tree(byId("tree"), { columns: info.columns, chosen, onChoose: () => show({ keepPlace: true }), onPick: pick });
  listen();
  await show();
  byId("grid").focus({ preventScroll: true });
}

function showFacts() {
  document.title = `${info.name} - recmap view`;
  byId("name").textContent = info.other ? `${info.name} ↔ ${info.other}` : info.name;
  const columns = counted(info.columns.length, "column");
  const shown = shownColumns().length;
  const facts = [info.format, rowsText(info.count), shown < info.columns.length ? `${shown} of ${columns} shown` : columns, info.size];
  if (info.batches) facts[1] += ` of batches ${info.batches[0]} to ${info.batches[1] - 1}`;
  if (info.skipped.length) facts.push(`${counted(info.skipped.length, "damaged record")} left out`);
  byId("facts").textContent = facts.filter(Boolean).join(" · ");
  byId("count").hidden = info.count.exact;
  byId("advance").hidden = !info.batches;
}

function fillControls() {
  byId("column").replaceChildren(...info.columns.filter((column) => column.type).map((column) =>
    make("option", { value: column.index }, column.name)));
  byId("operator").replaceChildren(...info.operators.map((each) => make("option", {}, each)));
  byId("differences").hidden = !info.other;
  byId("boxes").hidden = !info.box_orders.length;
  byId("boxorder").replaceChildren(...info.box_orders.map((each) =>
    make("option", { selected: each === info.box_order }, each)));
}

const shownColumns = () => info.columns.filter((column) => chosen.has(column.index)).slice(0, 256);
const total = () => order.kind === "search" ? order.numbers.length : info.count.rows;

function request(start, stop) {
  const given = { columns: shownColumns().map((column) => column.index), boxes: byId("boxorder").value || null };
  if (order.kind === "search") return { ...given, numbers: order.numbers.slice(start, stop) };
  if (order.kind === "sort") return { ...given, start, stop, sort: order.column, descending: order.descending };
  return { ...given, start, stop, seed: order.kind === "shuffle" ? order.seed : null };
}

// Load rows. Those of a file without an index are searched for first, for as long as they are wanted.
async function load(start, stop) {
  const version = grid?.version;
  for (;;) {
    const answer = await ask("rows", request(start, stop));
    setCount(answer.count);
    if (!answer.pending) {
      if (finding) tell("");
      finding = false;
      return answer.rows;
    }
    const away = start > grid.top + grid.inSight() || stop < grid.top;
    if (version !== grid.version || away) return new Promise(() => {});
    finding = true;
    tell(`Looking for row ${start.toLocaleString("en")}: ${counted(answer.count.found, "row")} found so far. ` +
      "An index (recmap index) makes this instant.", answer.count.found / Math.max(start, 1), () => {
      grid.goTo(Math.max(0, info.count.found - 1));
      tell("");
    });
  }
}
let finding = false;

function setCount(count) {
  if (count.rows === info.count.rows && count.exact === info.count.exact) {
    info.count = count;
    return;
  }
  info.count = count;
  showFacts();
  if (order.kind !== "search") grid?.setTotal(total());
}

async function show({ keepPlace = false } = {}) {
  const columns = shownColumns().map((column, place) => ({ ...column, place }));
  let rows = [];
  if (total() > 0) {
    try {
      rows = (await ask("rows", request(0, Math.min(total(), 16)))).rows;
    } catch (error) {
      tell(error.message);
    }
  }
  showFacts();
  for (const column of columns) if (order.kind === "sort" && column.index === order.column) column.sorted = order.descending ? "descending" : "ascending";
  const laid = layOut(columns, rows, Number(byId("size").value), Boolean(info.other));
  grid.show({ total: total(), ...laid, keepPlace });
}

function pick(column) {
  const columns = shownColumns();
  const place = columns.indexOf(column);
  if (place >= 0) grid.goTo(grid.focus.position, place);
  byId("column").value = column.index;
}

// Say something, with progress and a way to stop.
function tell(message, fraction = null, stop = null) {
  byId("status").hidden = !message;
  byId("message").textContent = message;
  byId("progress").hidden = fraction === null;
  byId("progress").value = Math.min(fraction ?? 0, 1);
  byId("stop").textContent = stop ? "Stop" : "Close";
  byId("stop").onclick = stop ?? (() => tell(""));
}

async function count() {
  running += 1;
  const mine = running;
  while (mine === running) {
    const answer = await ask("count");
    setCount(answer.count);
    if (answer.done) break;
    tell(`Counting: ${counted(answer.count.found, "row")} so far`, answer.count.found / Math.max(answer.count.rows, 1), () => { running += 1; });
  }
  tell("");
  return info.count.exact;
}

async function search(given) {
  running += 1;
  const mine = running;
  let start = 0, damagedRows = 0, stopped = false;
  let found;
  try {
    found = await ask("search", { ...given, start }); // a wrong value leaves the rows as they are
  } catch (error) {
    return tell(error.message);
  }
  if (mine !== running) return;
  order = { kind: "search", numbers: [] };
  byId("order").value = "file";
  byId("reshuffle").hidden = true;
  byId("clear").hidden = false;
  await show();
  const text = () => `${counted(order.numbers.length, "row")} found, ${start.toLocaleString("en")} of ${rowsText(info.count)} read` +
    (damagedRows ? `, ${counted(damagedRows, "damaged row")}` : "");
  try {
    while (mine === running) {
      found ??= await ask("search", { ...given, start });
      if (mine !== running) return;
      const first = order.numbers.length === 0 && found.rows.length > 0;
      order.numbers = order.numbers.concat(found.rows);
      start = found.next;
      damagedRows += found.damaged;
      info.count = found.count;
      if (first) await show();
      else grid.setTotal(total());
      if (found.done) break;
      found = null;
      if (order.numbers.length >= MOST_FOUND) {
        stopped = true;
        break;
      }
      tell(text(), start / Math.max(info.count.rows, 1), () => {
        running += 1;
        tell(`Stopped: ${text()}`);
      });
    }
    if (mine === running) tell(`${stopped ? "Stopped at a million rows: " : ""}${text()}`);
  } catch (error) {
    tell(error.message);
  }
}

// Sort by a column: ascending, then descending, then as stored.
async function sortBy(column) {
  const same = order.kind === "sort" && order.column === column.index;
  if (same && order.descending) return showAll();
  if (info.batches) return tell("Batches have their own order.");
  if (info.other) return tell("Two datasets are compared row by row, as they are stored.");
  const before = order;
  if (!info.count.exact && !(await count())) return;
  running += 1;
  order = { kind: "sort", column: column.index, descending: same };
  tell(`Sorting by ${column.name}`);
  try {
    await ask("rows", request(0, 1));
  } catch (error) {
    order = before;
    return tell(error.message);
  }
  byId("order").value = "file";
  byId("clear").hidden = false;
  byId("reshuffle").hidden = true;
  tell("");
  await show();
}

function showAll() {
  running += 1;
  order = { kind: "file" };
  byId("order").value = "file";
  byId("clear").hidden = true;
  byId("reshuffle").hidden = true;
  tell("");
  return show();
}

async function shuffle() {
  if (!info.count.exact && !(await count())) {
    byId("order").value = "file";
    return;
  }
  running += 1;
  order = { kind: "shuffle", seed: crypto.getRandomValues(new Uint32Array(1))[0] };
  byId("clear").hidden = true;
  byId("reshuffle").hidden = false;
  tell("");
  await show();
}

function listen() {
  byId("count").onclick = count;
  byId("order").onchange = () => byId("order").value === "shuffle" ? shuffle() : showAll();
  byId("reshuffle").onclick = shuffle;
  byId("clear").onclick = showAll;
  byId("size").onchange = () => show({ keepPlace: true });
  byId("boxorder").onchange = () => show({ keepPlace: true });
  byId("differences").onclick = () => search({ operator: "differs" });
  byId("advance").onclick = async () => {
    const columns = info.columns;
    info = { ...(await ask("advance")), columns };
    showFacts();
    await show();
  };
  byId("toggle").onclick = () => {
    const hidden = byId("columns").classList.toggle("away");
    byId("toggle").setAttribute("aria-expanded", !hidden);
  };
  byId("jump").onsubmit = (event) => {
    event.preventDefault();
    const number = Number(byId("number").value.replaceAll(/[\s,_]/g, ""));
    if (!Number.isInteger(number) || number < 0 || byId("number").value.trim() === "") return tell("Give the number of a row, from 0.");
    if (order.kind !== "file") showAll().then(() => jump(number));
    else jump(number);
  };
  byId("filter").onsubmit = (event) => {
    event.preventDefault();
    search({ column: Number(byId("column").value), operator: byId("operator").value, text: byId("value").value });
  };
  byId("operator").onchange = () => {
    const whole = byId("operator").value === "where"; // a condition, which names its columns
    byId("column").disabled = whole;
    byId("value").disabled = byId("operator").value === "missing";
    byId("value").placeholder = whole ? "label == 3 and size > 10" : "value  ( / )";
  };
  byId("help").onclick = () => byId("keys").showModal();
  document.addEventListener("keydown", (event) => {
    if (byId("keys").open) return;
    const typing = event.target.closest("input, select, textarea");
    if (event.key === "Escape") {
      if (pane.isOpen) pane.close();
      else byId("grid").focus({ preventScroll: true });
    } else if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    else if (event.key === "/") {
      event.preventDefault();
      byId("value").focus();
    } else if (event.key === "g") {
      event.preventDefault();
      byId("number").focus();
    } else if (event.key === "?") byId("keys").showModal();
    else if (event.key === "s") {
      const column = shownColumns()[grid.focus.column];
      if (column) sortBy(column);
    }
  });
}

function jump(number) {
  if (info.count.exact && number >= info.count.rows) return tell(`The last row is ${(info.count.rows - 1).toLocaleString("en")}.`);
  if (number >= grid.total) grid.setTotal(number + 1);
  grid.goTo(number);
  byId("grid").focus({ preventScroll: true });
}

start().catch((error) => tell(error.message));
