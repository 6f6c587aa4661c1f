/** Lines out of text that arrives in pieces, at most so many. */

export const MAX_LINES = 20_000;

export interface Line {
  number: number;
  task: number;
  time: string;
  text: string;
}

/** Split the output of one task, of which each line begins with its time and a space. */
export class LineSplitter {
  private rest = "";

  constructor(private readonly task: number) {}

  push(text: string): Omit<Line, "number">[] {
    const parts = (this.rest + text).split("\n");
    this.rest = parts.pop() ?? "";
    return parts.map((line) => this.line(line));
  }

  end(): Omit<Line, "number">[] {
    const rest = this.rest;
    this.rest = "";
    return rest ? [this.line(rest)] : [];
  }

  private line(text: string): Omit<Line, "number"> {
    const space = text.indexOf(" ");
    const first = space < 0 ? text : text.slice(0, space);
    // A notice of the server has no time.
    const timed = first === "-" || !Number.isNaN(Date.parse(first));
    // Colours and cursor movements mean nothing outside of a terminal.
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed.
    const shown = (!timed ? text : space < 0 ? "" : text.slice(space + 1)).replace(/\x1b\[[0-9;?]*[ -/]*[@-~]|\r/g, "");
    return { task: this.task, time: timed && first !== "-" ? first : "", text: shown };
  }
}

/** The end of what is known of one task's output, where the next reading goes on without gaps or repetitions. */
export class Resumption {
  /** The time of the last line; times are noted to 0.1 s, so that others may share it. */
  since = "";
  private known = 0;
  private skipped = 0;

  /** Begin a reading of the lines from `since` on, which the server sends once more. */
  begin(): void {
    this.skipped = this.known;
  }

  fresh<T extends { time: string }>(lines: T[]): T[] {
    return lines.filter(({ time }) => {
      if (time && time === this.since && this.skipped > 0) {
        this.skipped--;
        return false;
      }
      if (time && time !== this.since) [this.since, this.known, this.skipped] = [time, 0, 0];
      if (time) this.known++;
      return true;
    });
  }
}
