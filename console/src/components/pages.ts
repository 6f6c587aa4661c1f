/** The pages of the navigation, with the key that follows `g`. */

export const PAGES = [
  { name: "Overview", path: "/overview", key: "o" },
  { name: "Workloads", path: "/workloads", key: "w" },
  { name: "New workload", path: "/new", key: "c" },
  { name: "Timeline", path: "/timeline", key: "l" },
  { name: "Nodes", path: "/nodes", key: "n" },
  { name: "Sharing", path: "/sharing", key: "s" },
  { name: "Administration", path: "/admin", key: "a" },
] as const;
