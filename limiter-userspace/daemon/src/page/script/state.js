// States that the user has to know: bypass, trial, reload, alarms, interfaces. The warnings of the
// status are about a cluster as well.

// The states as lines: [kind, text, commands, whether the line stays]. Those stay that say that
// packets pass which should not, or that something is about to change.
function states(top, status) {
  const lines = [];
  const line = (stays, kind, text, commands) => lines.push([kind, clean(text), commands, stays]);
  const add = (kind, text, ...commands) => line(false, kind, text, commands);
  const keep = (kind, text, ...commands) => line(true, kind, text, commands);
  const off = status.interfaces.filter((at) => !at.attached);
  if (top.bypass) {
    keep("bad", "Limits are off: every packet passes.", command("on"));
  }
  for (const at of off) keep("bad", `${at.name}: ${OFF[at.state] ?? at.state}.`);
  if (status.trial) {
    const left = span(status.trial.seconds_left);
    keep("near", `Rules on trial: unless they are confirmed, the previous rules return in ${left}.`,
      command("confirm"), command("revert"));
  }
  if (status.last_trial && !status.last_trial.confirmed) {
    const why = status.last_trial.reason ?? "no reason is known";
    add("near", `The last trial was reverted: ${why}.`);
  }
  if (!status.last_reload.ok) {
    const error = status.last_reload.error ?? "no reason is known";
    add("bad", `The last reload was refused, and the previous rules stay in force: ${error}`,
      command("reload"));
  }
  if (status.applied) {
    add("quiet", "Rules of `limiter apply` are in force, in place of the rule files.",
      command("reload"));
  }
  for (const table of status.no_room_for) {
    add("bad", `No room for new ${table}: a flood, or too small a table.`, command("status"));
  }
  for (const rule of status.over_soft_limit) add("near", `Over its soft limit: ${rule}.`);
  for (const warning of status.warnings) add("near", warning);
  if (status.management.length > 0) {
    add("quiet", `Never limited (management): ${status.management.join(", ")}.`);
  }
  return lines;
}

// States of an interface that the program is not on, in words.
const OFF = {
  elsewhere: "limited in another network namespace",
  unseen: "not here, and whether it is limited elsewhere cannot be seen",
  detached: "the program is not on it, and packets pass",
  gone: "there is no such interface",
  refused: "it cannot be limited, and packets pass: `limiter status` says why",
};

// Lines that were dismissed, until they say something else or the page is loaded again.
const dismissed = new Set();

function drawStates(top, status) {
  const all = states(top, status);
  const lines = all.filter(([, text, , stays]) => stays || !dismissed.has(text));
  const stay = lines.filter(([, , , stays]) => stays);
  const more = lines.filter(([, , , stays]) => !stays);
  drawLines(byId("states"), stay, top, status);
  drawLines(byId("more-states"), more, top, status);
  byId("messages").hidden = more.length === 0;
  const bad = more.filter(([kind]) => kind !== "quiet").length;
  const words = bad === more.length ? counted(bad, "warning")
    : counted(more.length, "message") + (bad > 0 ? `, ${counted(bad, "warning")} among them` : "");
  tell(byId("messages-summary"), words);
  byId("messages-summary").className = bad > 0 ? "near" : "quiet";
  const hidden = all.length - lines.length;
  byId("dismissed").hidden = hidden === 0;
  tell(byId("dismissed"), `${counted(hidden, "message")} dismissed: show`);
  byId("dismissed").onclick = () => {
    dismissed.clear();
    drawStates(top, status);
  };
}

function drawLines(list, lines, top, status) {
  // The time that a trial has left changes each second: the element stays.
  lines.forEach(([kind, text, commands, stays], index) => {
    const wanted = JSON.stringify([kind, commands, stays]);
    let item = list.children[index];
    if (item?.dataset.of !== wanted) {
      const buttons = commands.map((text) => copyButton(text, `Copy ${text}`));
      const made = make("li", { class: kind, "data-of": wanted }, make("span"), ...buttons);
      if (!stays) made.append(dismissButton(made, top, status));
      if (item) item.replaceWith(made);
      else list.append(made);
      item = made;
    }
    tellCode(item.firstChild, text);
  });
  while (list.children.length > lines.length) list.lastChild.remove();
}

function dismissButton(item, top, status) {
  const button = make("button", { type: "button", class: "dismiss", "aria-label": "Dismiss" }, "×");
  button.addEventListener("click", () => {
    dismissed.add(item.firstChild.dataset.text);
    drawStates(top, status);
  });
  return button;
}
