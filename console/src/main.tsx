import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { ApiError } from "./api/client";
import * as session from "./api/session";
import { apply } from "./components/theme";
import { router } from "./router";
import "./style.css";

apply();

const client = new QueryClient({
  defaultOptions: {
    queries: {
      // Events make data stale; the interval only covers what has no event, such as a start that is estimated anew.
      staleTime: 15_000,
      refetchInterval: 300_000,
      // A server that restarts is tried again; a refusal stays one.
      retry: (failures, error) => failures < 5 && error instanceof ApiError && (error.status === 0 || error.status === 429 || error.status >= 500),
    },
  },
});

// Another user may log in next: nothing of this one stays.
session.subscribe(() => {
  if (!session.session()) client.clear();
});

const element = document.getElementById("root");
if (!element) throw new Error("the page has no root");
createRoot(element).render(
  <StrictMode>
    <QueryClientProvider client={client}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </StrictMode>,
);
