// States that whoever looks has to know: brake, trial, reload, alarms, interfaces. The warnings of
// the status tell of a cluster as well.

// The states as lines: [kind, text, commands].
function states(top, status) {
  const lines = [];
  const add = (kind, text, ...commands) => lines.push([kind, clean(text), commands]);
  const off = status.interfaces.filter((at) => !at.attached);
  if (top.brake) {
    add("bad", "Limits are off: every packet passes.", command("on"));
  } else if (off.length < status.interfaces.length) {
    add("good", "Limits are on.");
  }
  for (const at of off) add("bad", `${at.name}: ${OFF[at.state] ?? at.state}.`);
  if (status.trial) {
    const left = span(status.trial.seconds_left);
    add("near", `Rules on trial: the rules before come back in ${left}.`,
      command("confirm"), command("revert"));
  }
  if (status.last_trial && !status.last_trial.confirmed) {
    add("near", `The last trial was taken back: ${status.last_trial.reason ?? "no reason told"}.`);
  }
  if (!status.last_reload.ok) {
    const error = status.last_reload.error ?? "no reason told";
    add("bad", `The last reload was refused, and the rules before it are in force: ${error}`,
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
    add("quiet", `Guarded, and never limited: ${status.management.join(", ")}.`);
  }
  return lines;
}

// States of an interface that the program is not on, in words.
const OFF = {
  elsewhere: "limited in another network namespace",
  unseen: "not here, and whether it is limited elsewhere cannot be seen",
  detached: "the program is not on it, and packets pass",
  gone: "there is no such interface",
};

function drawStates(top, status) {
  const lines = states(top, status);
  const list = byId("states");
  // The time that a trial has left changes each second: the element stays.
  lines.forEach(([kind, text, commands], index) => {
    const wanted = JSON.stringify([kind, commands]);
    let item = list.children[index];
    if (item?.dataset.of !== wanted) {
      const buttons = commands.map((text) => copyButton(text, `Copy ${text}`));
      const made = make("li", { class: kind, "data-of": wanted }, make("span"), ...buttons);
      if (item) item.replaceWith(made);
      else list.append(made);
      item = made;
    }
    tell(item.firstChild, text);
  });
  while (list.children.length > lines.length) list.lastChild.remove();
}

// Drops by what dropped them: sources have all of the first of these, and a sample of the others.
const CAUSES = [
  ["sources", "rules that count each source"], ["others", "other rules and budgets"],
  ["lists", "lists and bans"],
];

// True if the counters of one answer go on in the other: no daemon was started in between.
const goesOn = (before, now) => Boolean(before) && before.began_ns === now.began_ns;

// The drops a second that are not by rules that count each source, in words; nothing without them.
function elsewhere(before, now) {
  if (!goesOn(before, now) || before.generation !== now.generation) return "";
  const time = now.clock_ns - before.clock_ns;
  const rates = CAUSES.map(([cause, name]) => {
    const [then, at] = [before.dropped_by[cause], now.dropped_by[cause]];
    return [name, then === null || at === null ? null : rate(then, at, time)];
  });
  if (rates.slice(1).every(([, each]) => each === 0)) return "";
  const words = rates.map(([name, each]) =>
    each === null ? `by ${name}: not added up` : `${perSecond(each)}/s by ${name}`);
  return `Dropped: ${words.join(", ")}. Of what does not count each source, its row has a part.`;
}

