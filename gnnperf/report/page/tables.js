// Tables sort by the column whose head is pressed: numbers by data-order, the largest first; texts by the alphabet.
"use strict";

function sortTable(table, column, descending) {
  const body = table.tBodies[0];
  const numeric = body.rows.length > 0 && [...body.rows].some((row) => row.cells[column].dataset.order !== undefined);
  const key = (row) => {
    const cell = row.cells[column];
    return numeric ? Number(cell.dataset.order ?? -Infinity) : cell.textContent;
  };
  const rows = [...body.rows].map((row) => [key(row), row]);
  rows.sort(([a], [b]) => (numeric ? a - b : a.localeCompare(b)) * (descending ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const first = table.tBodies[0].rows[0];
    const numeric = first !== undefined && first.cells[column].classList.contains("num");
    head.classList.toggle("num", numeric);
    if (!head.textContent) return; // bars
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.ariaSort ? head.ariaSort === "ascending" : numeric;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      sortTable(table, column, descending);
    });
  });
}

document.querySelectorAll("table.sortable").forEach(makeSortable);
