/** The frame of every page: navigation, the state of the connection, the viewer, shortcuts and the palette. */

import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useEffect, useState, useSyncExternalStore } from "react";
import { call, get, renewIfDue } from "../api/client";
import * as session from "../api/session";
import type { User } from "../api/types";
import { Loading } from "./basics";
import { Live, LiveState, useBegun } from "./live";
import { Palette } from "./palette";
import { PAGES } from "./pages";
import { subscribeTheme, theme, toggleTheme } from "./theme";

export function useMe() {
  return useQuery({
    queryKey: ["me"],
    queryFn: ({ signal }) => get<User>("/api/auth/me", undefined, signal),
    staleTime: 60_000,
  });
}

export function Layout() {
  const navigate = useNavigate();
  const [palette, setPalette] = useState(false);
  const [menu, setMenu] = useState(false);
  const colours = useSyncExternalStore(subscribeTheme, theme);
  const login = useSyncExternalStore(session.subscribe, session.session);
  const { data: me } = useMe();

  // The login has ended: ask for another one, and come back to this page.
  useEffect(() => {
    if (login) return;
    const next = location.pathname + location.search;
    void navigate({ to: "/login", search: { next } });
  }, [login, navigate]);

  useEffect(() => {
    const timer = setInterval(() => {
      if (session.session()) void renewIfDue();
      else session.end(false);
    }, 5_000);
    return () => clearInterval(timer);
  }, []);

  useShortcuts(setPalette, (path) => void navigate({ to: path }));

  async function logout() {
    try {
      await call("DELETE", "/api/logins/current");
    } catch {
      // It has ended already, or ends by itself within the hour.
    }
    session.end(true);
    void navigate({ to: "/login", search: {} });
  }

  return (
    <Live user={login ? session.userOf(login) : undefined}>
      <a className="skip" href="#main">
        Skip to the content
      </a>
      <div className={menu ? "frame open" : "frame"}>
        <nav aria-label="Pages">
          <div className="brand">
            <svg viewBox="0 0 32 32" aria-hidden="true">
              <path d="M16 4a4 4 0 0 1 1.700 7.600V14h4v3h-4v8.500c3.700-.6 6.500-3.200 7.300-6.500l-2.400 1.300.3-4.900 5.700 3.800-.8 1.300C26.700 26 21.900 29 16 29S5.300 26 4.200 20.500l-.8-1.300 5.700-3.800.3 4.900L7 19c.8 3.300 3.600 5.900 7.300 6.500V17h-4v-3h4v-2.400A4 4 0 0 1 16 4z" />
            </svg>
            Mooring
          </div>
          {PAGES.map((page) => (
            <Link key={page.path} to={page.path} activeProps={{ "aria-current": "page" }} onClick={() => setMenu(false)}>
              {page.name}
            </Link>
          ))}
          <div className="spacer" />
          <a href="/docs">API</a>
        </nav>
        <div className="column">
          <header className="top">
            <button type="button" className="menu" aria-label="Pages" aria-expanded={menu} onClick={() => setMenu(!menu)}>
              ☰
            </button>
            <button type="button" className="search" onClick={() => setPalette(true)}>
              <span>Search or run…</span>
              <kbd>Ctrl K</kbd>
            </button>
            <div className="spacer" />
            <LiveState />
            <button
              type="button"
              className="plain"
              aria-label={colours === "dark" ? "Light theme" : "Dark theme"}
              onClick={toggleTheme}
            >
              {colours === "dark" ? "☀" : "☾"}
            </button>
            {me && (
              <span className="me" title={`${me.role} · project ${me.project} · domain ${me.domain}`}>
                {me.username}
              </span>
            )}
            <button type="button" className="plain" onClick={() => void logout()}>
              Log out
            </button>
          </header>
          <main id="main" tabIndex={-1}>
            <Page />
          </main>
        </div>
      </div>
      {palette && <Palette onClose={() => setPalette(false)} onLogout={() => void logout()} />}
    </Live>
  );
}

function Page() {
  return useBegun() ? <Outlet /> : <Loading />;
}

type Path = (typeof PAGES)[number]["path"];

/** `Ctrl K` and `/` open the palette, `g` and a letter go to a page, `t` changes the theme. */
function useShortcuts(open: (shown: boolean) => void, go: (path: Path) => void) {
  useEffect(() => {
    let prefixed = 0;
    function keyed(event: KeyboardEvent) {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        open(true);
        return;
      }
      const target = event.target as HTMLElement;
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog, .xterm")) return;
      if (event.key === "g") prefixed = event.timeStamp;
      else if (event.timeStamp - prefixed < 1000) {
        prefixed = 0;
        const page = PAGES.find((each) => each.key === event.key);
        if (page) go(page.path);
      } else if (event.key === "/") {
        event.preventDefault();
        open(true);
      } else if (event.key === "t") toggleTheme();
    }
    addEventListener("keydown", keyed);
    return () => removeEventListener("keydown", keyed);
  }, [open, go]);
}
