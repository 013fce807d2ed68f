// Ask the server. All addresses are relative: they begin with the token.

export async function ask(name, given = {}, signal = undefined) {
  const response = await fetch(`api/${name}`, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(given),
    signal,
  });
  const answer = await response.json();
  if (!response.ok) throw new Error(answer.error);
  return answer;
}

export function mediaAddress(row, column, more = {}) {
  const given = Object.entries(more).filter(([, value]) => value);
  return `media?${new URLSearchParams([["row", row], ["column", column], ...given])}`;
}
