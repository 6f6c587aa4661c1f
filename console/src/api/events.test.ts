import { describe, expect, it } from "vitest";
import { MessageParser } from "./events";

describe("MessageParser", () => {
  it("puts a message back into one piece however it is cut", () => {
    const text = "retry: 1000\nid: 0-5\n\nid: 0-6\ndata: {\"a\":1}\n\n: still here\nid: 0-9\n\n";
    for (let cut = 0; cut <= text.length; cut++) {
      const parser = new MessageParser();
      const messages = [...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))];
      expect(messages).toEqual([{ id: "0-5" }, { id: "0-6", data: '{"a":1}' }, { id: "0-9" }]);
    }
  });

  it("keeps the kind of a message and joins its lines of data", () => {
    expect(new MessageParser().push("event: end\ndata: a\ndata: b\n\n")).toEqual([{ event: "end", data: "a\nb" }]);
  });

  it("holds back a message that is not complete", () => {
    expect(new MessageParser().push("id: 1\ndata: x\n")).toEqual([]);
  });
});
