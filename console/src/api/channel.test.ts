import { describe, expect, it } from "vitest";
import { decode, encodeData, encodeSize, encodeWindow } from "./channel";

describe("frames of a channel", () => {
  it("are those of the server: kind, then content, numbers big-endian", () => {
    expect([...encodeData(new Uint8Array([104, 105]))]).toEqual([0, 104, 105]);
    expect([...encodeWindow(0x01020304)]).toEqual([2, 1, 2, 3, 4]);
    expect([...encodeSize(24, 300)]).toEqual([3, 0, 24, 1, 44]);
  });

  it("are read wherever they lie in a buffer", () => {
    const buffer = new Uint8Array([9, 9, 2, 0, 0, 1, 0]);
    expect(decode(buffer.subarray(2))).toEqual({ kind: "window", count: 256 });
    expect(decode(new Uint8Array([1, 7]))).toEqual({ kind: "data", data: new Uint8Array([7]) });
  });

  it("end with the result of the command", () => {
    const frame = new Uint8Array([4, ...new TextEncoder().encode('{"exit_code":3}')]);
    expect(decode(frame)).toEqual({ kind: "end", end: { exit_code: 3 } });
  });

  it("of an unknown kind are refused", () => {
    expect(() => decode(new Uint8Array([9]))).toThrow("unknown frame");
  });
});
