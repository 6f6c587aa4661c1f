/** The kinds of workloads that can be submitted. */

export const KINDS = ["session", "deployment", "lab"] as const;
export type Kind = (typeof KINDS)[number];
