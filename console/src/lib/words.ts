/** Command lines as in a shell. */

/** The words of a command line, with quotes as in a shell. */
export function words(text: string): string[] {
  const found: string[] = [];
  for (const match of text.matchAll(/(?:"(?:[^"\\]|\\.)*"?|'[^']*'?|\\.|[^\s"'\\])+/g)) {
    found.push(match[0].replace(/"((?:[^"\\]|\\.)*)"?|'([^']*)'?|\\(.)/g, (_, double, single, escaped) => double?.replace(/\\(["\\])/g, "$1") ?? single ?? escaped));
  }
  return found;
}

export function commandLine(parts: readonly unknown[]): string {
  return parts.map((part) => (/^[\w@%+=:,./-]+$/.test(String(part)) ? String(part) : `'${String(part).replaceAll("'", `'"'"'`)}'`)).join(" ");
}
